"""Scaling rules and warm-ups, put together by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.schedules import Peak, check_plan, lr, plan, scale_lr
from bigbatch.schedules.composed import Config


def run_with(schedule: dict, lr: float = 0.1, global_batch: int = 512) -> SimpleNamespace:
    return SimpleNamespace(
        optimizer=SimpleNamespace(lr=lr),
        schedule=Config.model_validate(schedule),
        global_batch=parts.configure("batch_sizes", global_batch),
    )


def lrs(schedule: dict, epochs: list[float], global_batch: int = 512) -> list[float]:
    run = run_with(schedule, global_batch=global_batch)
    return [lr(Position(epoch, 10, global_batch), run) for epoch in epochs]


def test_scaling_rules_at_sixteen_times_and_a_sixteenth_of_the_batch():
    assert [scale_lr(0.1, 16, rule) for rule in ("linear", "sqrt", "none")] == pytest.approx([1.6, 0.4, 0.1])
    assert [scale_lr(0.1, 1 / 16, rule) for rule in ("linear", "sqrt", "none")] == pytest.approx([0.00625, 0.025, 0.1])


def test_without_options_the_lr_is_the_optimizers():
    assert lrs({}, [0, 5, 9.9]) == [0.1, 0.1, 0.1]


def test_gradual_warmup_from_a_share_of_the_peak():
    schedule = {
        "scaling": "linear",
        "baseline_batch": 128,
        "warmup": {"kind": "gradual", "epochs": 2, "start": 0.5},
        "decay": {"kind": "polynomial", "power": 1, "over": "training"},
    }
    # peak 0.4: 0.2 at the start, 0.3 half way, then 0.4 · (1 − 5/10)
    assert lrs(schedule, [0, 1, 5]) == pytest.approx([0.2, 0.3, 0.2])


def test_constant_warmup_holds_the_baselines_lr_then_jumps():
    schedule = {"scaling": "sqrt", "baseline_batch": 128, "warmup": {"kind": "constant", "epochs": 2}}
    assert lrs(schedule, [0, 1.99, 2]) == pytest.approx([0.1, 0.1, 0.2])


def test_a_scaled_lr_needs_its_baseline():
    with pytest.raises(ValidationError, match="scaling 'sqrt' needs baseline_batch"):
        Config(scaling="sqrt")


@pytest.mark.parametrize("epochs", [-1, float("nan"), float("inf")])
def test_a_bad_warmup_is_refused(epochs):
    with pytest.raises(ValidationError, match=r"warmup\.gradual\.epochs"):
        Config.model_validate({"warmup": {"kind": "gradual", "epochs": epochs}})


def test_a_constant_warmup_at_lr_zero_is_refused():
    with pytest.raises(Problem, match="warmup_from is 0"):
        Peak(lr=0.1, warmup_epochs=1, warmup="constant")


def test_check_finds_the_long_warmup_before_the_training_does():
    run = run_with({"warmup": {"kind": "gradual", "epochs": 11}})
    with pytest.raises(Problem, match="warmup_epochs is 11"):
        check_plan(run, total_epochs=10)
    check_plan(run, total_epochs=11)


def test_curve_reads_lr_and_batch_in_the_middle_of_each_piece():
    run = run_with({"decay": {"kind": "polynomial", "power": 1}})
    assert plan(run, total_epochs=10, points=2) == [(2.5, pytest.approx(0.075), 512), (7.5, pytest.approx(0.025), 512)]
