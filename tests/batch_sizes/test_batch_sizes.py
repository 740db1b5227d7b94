"""The global batch over time, and the learning rate that comes with it, by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from bigbatch import batch_sizes, parts
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.schedules import check_plan, lr, plan

# Gao & Zhong 2020, section 3.2
PAPER_STAGES = {
    "name": "steps",
    "stages": [
        {"from_epoch": 0, "global_batch": 512, "lr": 0.005},
        {"from_epoch": 1, "global_batch": 8192, "lr": 0.05},
    ],
}
# Smith et al. 2018, Fig. 1: a fall to a fifth at epochs 60, 120 and 160
WIDE_RESNET = {"kind": "multi_step", "at_epochs": [60, 120, 160], "multiply_by": 0.2}


def run_with(batch_size, schedule="constant", lr: float = 0.1) -> SimpleNamespace:
    return SimpleNamespace(
        optimizer=SimpleNamespace(lr=lr),
        schedule=parts.configure("schedules", schedule),
        global_batch=parts.configure("batch_sizes", batch_size),
    )


def batch_at(epochs: float, config, history=(), total_epochs: float = 200) -> int:
    return batch_sizes.at(Position(epochs, total_epochs, 0), history, parts.configure("batch_sizes", config))


def lr_at(epochs: float, global_batch: int, run, total_epochs: float = 200) -> float:
    return lr(Position(epochs, total_epochs, global_batch), run)


def test_a_number_is_a_constant_batch():
    assert parts.configure("batch_sizes", 8192) == parts.configure(
        "batch_sizes", {"name": "constant", "global_batch": 8192}
    )
    assert batch_at(199, 8192) == 8192


def test_the_papers_first_epoch_has_its_own_batch_and_lr():
    run = run_with(PAPER_STAGES)
    assert [batch_at(epochs, PAPER_STAGES) for epochs in (0, 0.99, 1, 150)] == [512, 512, 8192, 8192]
    assert lr_at(0.5, 512, run) == 0.005
    assert lr_at(1.5, 8192, run) == 0.05


def test_a_stages_lr_is_the_peak_and_still_decays():
    run = run_with(PAPER_STAGES, {"name": "composed", "decay": {"kind": "multi_step", "at_epochs": [100]}})
    assert lr_at(50, 8192, run) == 0.05
    assert lr_at(100, 8192, run) == pytest.approx(0.005)


def test_a_batch_that_reaches_into_the_next_stage_keeps_the_lr_it_began_with():
    stages = [
        {"from_epoch": 0, "global_batch": 512, "lr": 0.005},
        {"from_epoch": 0.5, "global_batch": 8192, "lr": 0.05},
    ]
    # the middle of the batch of 512 lies behind the start of the second stage
    assert lr_at(0.501, 512, run_with({"name": "steps", "stages": stages})) == 0.005


def test_a_stage_without_an_lr_leaves_it_to_the_schedule():
    stages = [{"from_epoch": 0, "global_batch": 128}, {"from_epoch": 1, "global_batch": 512}]
    schedule = {"name": "composed", "scaling": "sqrt", "baseline_batch": 128}
    run = run_with({"name": "steps", "stages": stages}, schedule)
    assert [lr_at(0, 128, run), lr_at(1, 512, run)] == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ([1], "should begin with from_epoch 0, got 1"),
        ([0, 5, 5], "increasing values of from_epoch"),
        ([], "stages"),
        ([-1], "stages"),
    ],
)
def test_stages_that_do_not_cover_the_run_are_refused(starts, said):
    stages = [{"from_epoch": start, "global_batch": 64} for start in starts]
    with pytest.raises((ValidationError, Problem), match=said):
        parts.configure("batch_sizes", {"name": "steps", "stages": stages})


def test_the_batch_grows_where_the_lr_would_have_fallen():
    config = {"name": "increase", "start": 128, "maximum": 100_000, "decay": WIDE_RESNET}
    run = run_with(config)
    assert [batch_at(epochs, config) for epochs in (0, 60, 120, 160)] == [128, 640, 3200, 16000]
    assert [lr_at(e, b, run) for e, b in ((0, 128), (60, 640), (120, 3200), (160, 16000))] == pytest.approx([0.1] * 4)


def test_at_the_maximum_the_lr_falls_instead():
    config = {"name": "increase", "start": 128, "maximum": 1280, "decay": WIDE_RESNET}
    run = run_with(config)
    assert [batch_at(epochs, config) for epochs in (60, 120, 160)] == [640, 1280, 1280]
    # 25 times less noise: the batch takes 10 of them, the learning rate 2.5
    assert [lr_at(e, b, run) for e, b in ((60, 640), (120, 1280), (160, 1280))] == pytest.approx([0.1, 0.04, 0.008])


def test_lr_over_batch_falls_exactly_as_under_the_decay_it_replaces():
    config = {"name": "increase", "start": 100, "maximum": 700, "decay": {"kind": "polynomial"}}
    run = run_with(config)
    for epochs in (0.0, 13.7, 99.9, 150.0, 199.9):
        global_batch = batch_at(epochs, config)
        decayed = 0.1 * (1 - epochs / 200) ** 2
        assert lr_at(epochs, global_batch, run) / global_batch == pytest.approx(decayed / 100)
    assert batch_at(200, config) == 700  # the decay has reached zero


def test_growth_is_no_reason_for_a_scaling_rule_to_raise_the_lr():
    config = {"name": "increase", "start": 128, "maximum": 3200, "decay": WIDE_RESNET}
    run = run_with(config, {"name": "goyal", "baseline_batch": 64, "decay": {"kind": "constant"}})
    assert lr_at(120, 3200, run) == pytest.approx(0.2)


NOISE = {"name": "noise_scale", "start": 64, "minimum": 32, "maximum": 1024, "every_epochs": 2}


def test_noise_scale_starts_without_a_measurement():
    assert batch_at(3, NOISE) == 64
    assert batch_at(3, NOISE, [{"epoch": 1.0, "train_loss": 2.3}]) == 64


def test_noise_scale_decides_every_second_epoch_and_looks_no_further():
    history = [
        {"epoch": 0.5, "noise_scale": {"whole": 200.0}},  # log2 7.64: 256
        {"epoch": 2.5, "noise_scale": {"whole": 500.0}},
        {"epoch": 3.5, "noise_scale": {"whole": 90.0}},  # log2 6.49: 64
    ]
    assert [batch_at(epochs, NOISE, history) for epochs in (0.6, 1.9, 2, 3.9, 4, 9)] == [64, 64, 256, 256, 64, 64]


def test_noise_scale_decides_alike_from_a_longer_history():
    history = [{"epoch": epoch / 4, "noise_scale": {"whole": 50.0 * (epoch + 1)}} for epoch in range(40)]
    for epochs in (0.0, 2.1, 5.3, 8.0):
        so_far = [row for row in history if row["epoch"] <= epochs]
        assert batch_at(epochs, NOISE, so_far) == batch_at(epochs, NOISE, history)


@pytest.mark.parametrize(("scale", "expected"), [(1e-3, 32), (1e9, 1024), (91.0, 128), (90.0, 64)])
def test_noise_scale_is_rounded_to_a_power_of_two_within_bounds(scale, expected):
    assert batch_at(2, NOISE, [{"epoch": 1.0, "noise_scale": {"whole": scale}}]) == expected


@pytest.mark.parametrize("scale", [None, float("nan"), float("inf"), -433.0, 0.0])
def test_an_estimate_lost_in_the_noise_is_passed_over(scale):
    history = [{"epoch": 0.5, "noise_scale": {"whole": 512.0}}, {"epoch": 1.0, "noise_scale": {"whole": scale}}]
    assert batch_at(2, NOISE, history) == 512


def test_a_batch_size_out_of_order_is_refused():
    with pytest.raises((ValidationError, Problem), match="start 64 is not between minimum 128"):
        parts.configure("batch_sizes", NOISE | {"minimum": 128})
    with pytest.raises((ValidationError, Problem), match="maximum 64 is below start 128"):
        parts.configure("batch_sizes", {"name": "increase", "start": 128, "maximum": 64, "decay": WIDE_RESNET})


def test_check_looks_at_the_largest_batch_that_a_measurement_may_ask_for():
    legw = {"name": "legw", "baseline_batch": 64, "warmup_epochs": 1.0}
    with pytest.raises(Problem, match="warmup_epochs is 16 at global batch 1024"):
        check_plan(run_with(NOISE, legw), total_epochs=10)
    # growth in the place of decay never scales the warm-up
    increase = {"name": "increase", "start": 64, "maximum": 1024, "decay": {"kind": "polynomial"}}
    check_plan(run_with(increase, legw), total_epochs=10)


def test_curve_shows_the_growing_batch():
    config = {"name": "increase", "start": 128, "maximum": 1280, "decay": WIDE_RESNET}
    points = plan(run_with(config), total_epochs=200, points=5)
    assert [point.global_batch for point in points] == [128, 640, 640, 1280, 1280]
    assert [point.lr for point in points] == pytest.approx([0.1, 0.1, 0.1, 0.04, 0.008])


def test_run_json_calls_a_stages_lr_rate_as_it_always_did_and_both_are_read():
    config = parts.configure("batch_sizes", PAPER_STAGES)
    dumped = config.model_dump(mode="json")
    assert json.dumps(dumped["stages"][0]) == '{"from_epoch": 0.0, "global_batch": 512, "rate": 0.005}'
    assert parts.configure("batch_sizes", dumped) == config
    plain = {"name": "steps", "stages": [{"from_epoch": 0, "global_batch": 512}]}
    assert parts.configure("batch_sizes", plain).model_dump(mode="json")["stages"][0]["rate"] is None


SEESAW = {"name": "seesaw", "start": 128, "maximum": 1024, "decay": {"kind": "polynomial", "power": 1}}


def test_seesaw_doubles_the_batch_where_the_lr_would_halve():
    # a straight line over 200 epochs is at 1, .51, .5, .26, .25, .13, .125, .05: halves at epochs 100, 150, 175
    run, epochs = run_with(SEESAW, lr=0.4), (0, 98, 100, 148, 150, 174, 175, 190)
    batches = [batch_at(epoch, SEESAW) for epoch in epochs]
    assert batches == [128, 128, 256, 256, 512, 512, 1024, 1024]
    lrs = [lr_at(epoch, batch, run) for epoch, batch in zip(epochs, batches, strict=True)]
    # over √2 each time; from the largest batch on as the line goes: at 190 by .05/.125 more
    assert lrs == pytest.approx([0.4 / 2 ** (n / 2) for n in (0, 0, 1, 1, 2, 2, 3)] + [0.4 / 8**0.5 * 0.05 / 0.125])


def test_seesaw_has_fewer_steps_for_as_many_samples_and_follows_alpha():
    tenfold = SEESAW | {"alpha": 10.0, "maximum": 10_000, "decay": WIDE_RESNET | {"multiply_by": 0.1}}
    run = run_with(tenfold, lr=1.0)
    assert [batch_at(epoch, tenfold) for epoch in (59, 60, 119, 120, 160)] == [128, 1280, 1280, 10_000, 10_000]
    assert lr_at(60, 1280, run) == pytest.approx(10**-0.5)
    # the last batch is 78.125 times the start, not 100 times: the lr makes up for it
    assert lr_at(120, 10_000, run) == pytest.approx(0.01 * 78.125**0.5)


CRITICAL = {
    "name": "critical_batch",
    "start": 32,
    "maximum": 300,
    "measured": [{"epoch": 1, "critical_batch": 40}, {"epoch": 3, "critical_batch": 200}],
}


def test_the_batch_doubles_when_the_measured_critical_batch_allows():
    # 40 until epoch 1, then 80 more per epoch: 64 at 1.3, 128 at 2.1, 200 from 3 on
    assert [batch_at(epoch, CRITICAL) for epoch in (0, 1, 1.29, 1.31, 2.09, 2.11, 50)] == [32, 32, 32, 64, 64, 128, 128]
    assert batch_sizes.largest(parts.configure("batch_sizes", CRITICAL)) == 128
    assert batch_at(5, CRITICAL | {"maximum": 100}) == 64
    falling = [*CRITICAL["measured"], {"epoch": 5, "critical_batch": 50}]
    assert batch_at(9, CRITICAL | {"measured": falling}) == 128
    below = [{"epoch": 0, "critical_batch": 3}]
    assert batch_at(0, CRITICAL | {"measured": below}) == 32
    scaled = run_with(CRITICAL, {"name": "composed", "scaling": "sqrt", "baseline_batch": 32})
    assert lr_at(50, 128, scaled) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (SEESAW | {"alpha": 1}, "alpha should be greater than 1"),
        (SEESAW | {"maximum": 64}, "maximum 64 is below start 128"),
        (CRITICAL | {"maximum": 16}, "maximum 16 is below start 32"),
        (CRITICAL | {"measured": CRITICAL["measured"][::-1]}, "measured should have increasing epochs"),
    ],
)
def test_batches_that_cannot_grow_are_refused(wrong, sentence):
    with pytest.raises(Problem, match=sentence):
        parts.configure("batch_sizes", wrong)
