"""Rules by hand, on a run as a whole, and beside schedules that scale by themselves."""

from __future__ import annotations

import pytest
from small import small_run

from bigbatch import parts, schedules
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.scaling_rules import half_life_decay, timescale_weight_decay
from bigbatch.scaling_rules.adam_sde import sde_beta

WARMUP = {"kind": "gradual", "epochs": 0.1}
COMPOSED = {"name": "composed", "warmup": WARMUP}
LEGW = {"name": "legw", "baseline_batch": 128, "warmup_epochs": 0.1, "decay": {"kind": "constant"}}


def run(optimizer=None, schedule="constant", **fields) -> Run:
    optimizer = optimizer or {"name": "momentum", "lr": 0.1, "weight_decay": 0.01}
    return small_run(**{"optimizer": optimizer, "schedule": schedule, "global_batch": 128, "epochs": 25} | fields)


def changes(base: Run, global_batch: int, rule=None) -> dict:
    return {change.field: change.after for change in base.changes_at_batch(global_batch, rule)}


def test_the_formulas():
    assert sde_beta(0.999, 16) == pytest.approx(0.984)
    assert sde_beta(0.9, 16) == 0  # 1 − 1.6 would be −0.6
    assert half_life_decay(0.999, 16) == pytest.approx(0.9841195, abs=1e-7)
    # half a sample's weight is forgotten after ln 2 / −ln β steps; times the batch it is the same number of samples
    assert timescale_weight_decay(0.1, 16, 4) == pytest.approx(0.4)  # 16 / (4 · 0.4) = 1 / 0.1
    assert timescale_weight_decay(0.1, 16, 16) == pytest.approx(0.1)  # linear scaling keeps it by itself


@pytest.mark.parametrize(("rule", "lr"), [("legw", 0.8), ("sqrt", 0.8), ("linear", 6.4), ("none", 0.1)])
def test_learning_rates_at_64_times_the_batch(rule, lr):
    scaled = run().at_batch(8192, rule)
    assert (scaled.optimizer.lr, scaled.global_batch.global_batch) == (pytest.approx(lr), 8192)
    assert scaled.optimizer.weight_decay == 0.01  # L2


def test_legw_alone_lengthens_the_warmup():
    for rule, epochs in [("legw", 6.4), ("linear", 0.1), ("sqrt", 0.1), ("none", 0.1), ("muon", 0.1)]:
        assert run(schedule=COMPOSED).at_batch(8192, rule).schedule.warmup.epochs == pytest.approx(epochs)
    constant = {"name": "composed", "warmup": {"kind": "constant", "epochs": 0.1}}
    assert run(schedule=constant).at_batch(8192, "legw").schedule.warmup.epochs == pytest.approx(6.4)


def test_adam_by_its_sde_with_l2_and_with_decoupled_decay():
    options = {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
    expected = {
        "global_batch": 512,
        "optimizer.lr": pytest.approx(0.002),
        "optimizer.betas": pytest.approx((0.6, 0.996)),
        "optimizer.eps": pytest.approx(5e-9),
    }
    assert changes(run({"name": "adam"} | options), 512, "adam_sde") == expected
    decoupled = {"name": "adamw"} | options
    # 4 times fewer steps: lr·λ becomes 4-fold, and lr is 2-fold
    assert changes(run(decoupled), 512, "adam_sde") == expected | {"optimizer.weight_decay": pytest.approx(0.2)}
    assert changes(run(decoupled), 512, "linear") == {"global_batch": 512, "optimizer.lr": pytest.approx(0.004)}
    assert "optimizer.weight_decay" not in changes(run(decoupled), 512, "none")
    outside = changes(run(decoupled | {"name": "torch.optim:AdamW"}), 512)
    assert outside["optimizer.weight_decay"] == pytest.approx(0.2)
    assert changes(run({"name": "rmsprop", "lr": 0.1, "alpha": 0.99}), 512, "adam_sde")[
        "optimizer.alpha"
    ] == pytest.approx(0.96)


def test_beta2_by_its_half_life():
    found = changes(run({"name": "adam", "lr": 0.001}), 128 * 64, "beta2_half_life")
    assert found["optimizer.betas"] == (0.9, pytest.approx(0.999**64))
    assert found["optimizer.lr"] == pytest.approx(0.008)
    assert "optimizer.eps" not in found
    with pytest.raises(Problem, match="'momentum' has no betas: use another scaling rule"):
        run().at_batch(256, "beta2_half_life")


def test_muon_keeps_the_timescale_of_its_weight_decay_at_any_exponent():
    decoupled = {"name": "adamw", "lr": 0.02, "weight_decay": 0.1}
    found = changes(run(decoupled), 128 * 16, {"name": "muon", "lr_exponent": 0.25})
    assert found["optimizer.lr"] == pytest.approx(0.04)
    assert found["optimizer.weight_decay"] == pytest.approx(0.8)  # 16 / (2 · 0.8) = 1 / 0.1


@pytest.mark.parametrize("k", [1 / 4, 4, 64])
def test_a_legw_schedule_is_not_scaled_twice(k):
    scaled = run(schedule=LEGW).at_batch(int(128 * k), "legw")
    assert scaled == run(schedule=LEGW, global_batch=int(128 * k))
    peak = schedules.lr(Position(20, 25, int(128 * k)), scaled)
    assert peak == pytest.approx(0.1 * k**0.5)
    by_rule = run(schedule=COMPOSED).at_batch(int(128 * k), "legw")  # the same learning rates without a baseline
    for epochs in (0.01, 0.1, 1, 6, 7, 24):
        position = Position(epochs, 25, int(128 * k))
        assert schedules.lr(position, scaled) == pytest.approx(schedules.lr(position, by_rule))


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        (LEGW, 8),
        ({"name": "composed", "scaling": "sqrt", "baseline_batch": 32, "warmup": WARMUP}, 8),
        ({"name": "composed", "scaling": "linear", "baseline_batch": 32}, 64),
        ({"name": "goyal", "baseline_batch": 128, "warmup_epochs": 2}, 64),
    ],
)
def test_the_schedule_scales_lr_and_the_rule_the_rest(schedule, factor):
    base = run({"name": "adam", "lr": 0.001}, schedule)
    agreeing = "linear" if factor == 64 else "adam_sde"
    scaled = base.at_batch(8192, agreeing)
    assert scaled.optimizer.lr == 0.001
    lrs = [schedules.lr(Position(20, 25, run.global_batch.global_batch), run) for run in (base, scaled)]
    assert lrs[1] / lrs[0] == pytest.approx(factor)
    if agreeing == "adam_sde":
        assert scaled.optimizer.eps == pytest.approx(1e-8 / 8)
    disagreeing = "legw" if factor == 64 else "linear"
    for rule in (disagreeing, "none"):
        with pytest.raises(Problem, match=f"multiplies the learning rate by {factor} at 64 times the batch"):
            base.at_batch(8192, rule)


def test_the_warmup_of_a_schedule_that_scales_lr_only_follows_the_rule():
    schedule = {"name": "composed", "scaling": "sqrt", "baseline_batch": 128, "warmup": WARMUP}
    assert run(schedule=schedule).at_batch(8192, "legw").schedule.warmup.epochs == pytest.approx(6.4)
    assert run(schedule=LEGW).at_batch(8192, "sqrt").schedule.warmup_epochs == 0.1  # of the baseline


def test_a_warmup_longer_than_the_training_keeps_its_sentence():
    scaled = run(schedule=COMPOSED, epochs=5).at_batch(8192, "legw")
    with pytest.raises(Problem, match=r"warmup_epochs is 6.4 at global batch 8192, longer than the training of 5"):
        schedules.check_plan(scaled, 5)


def test_the_rule_is_the_optimizers_unless_one_is_named():
    for optimizer in parts.names("optim"):
        rule = parts.find("optim", optimizer).Config.scaling_rule
        assert rule in parts.names("scaling_rules")
    assert run(schedule=COMPOSED).at_batch(512) == run(schedule=COMPOSED).at_batch(512, "legw")


def test_settings_describe_the_run_that_is_scaled():
    base, then = run(schedule=COMPOSED), ["optimizer.lr=0.2", "schedule.warmup.epochs=0.2"]
    for settings in (["scale_batch=4", *then], [*then, "scale_batch=4"]):
        scaled = base.with_settings(settings)
        assert (scaled.optimizer.lr, scaled.schedule.warmup.epochs) == (pytest.approx(0.4), pytest.approx(0.8))
        assert scaled.global_batch.global_batch == 512
    exponent = ["scale_batch=16", "scaling_rule=muon", "scaling_rule.lr_exponent=0.25"]
    assert base.with_settings(exponent).optimizer.lr == pytest.approx(0.2)
    assert base.with_settings(["scale_batch=0.25", "scaling_rule=linear"]).optimizer.lr == pytest.approx(0.025)
    assert base.with_settings(["scale_batch=1"]) == base


def test_a_budget_of_steps_keeps_its_samples():
    assert run(epochs=None, steps=100).at_batch(512).steps == 25


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["scale_batch=0"], "scale_batch is 0: give how many times the batch"),
        (["scale_batch=many"], "scale_batch is 'many'"),
        (["scaling_rule=legw"], "scale_batch is None"),
        (["scale_batch=NaN"], "scale_batch is nan"),
        (["scale_batch=0.001"], "global_batch must be at least 1, got 0"),
        (["scale_batch=2", "scaling_rule=lewg"], "no scaling rule called 'lewg'; did you mean 'legw'"),
        (["scale_batch=2", "scaling_rule.power=2"], "scaling rule 'legw' has no option 'power'"),
        (
            ["scale_batch=2", 'global_batch={"name":"steps","stages":[{"from_epoch":0,"global_batch":8}]}'],
            "global_batch 'steps' changes during the training",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(settings, sentence):
    with pytest.raises(Problem, match=sentence):
        run().with_settings(settings)


@pytest.mark.parametrize("rule", [name for name in parts.names("scaling_rules") if name != "none"])
def test_the_average_of_weights_keeps_its_half_life_in_samples(rule):
    base = run({"name": "adam", "lr": 0.001}, ema_decay=0.99)
    assert base.at_batch(1024, rule).ema_decay == pytest.approx(0.99**8)
