"""The LRScheduler: one step a batch, exact in a resume, in a changed batch and in an uneven last batch."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch import nn

from bigbatch.errors import Problem
from bigbatch.schedules import Baseline, Schedule, as_torch, legw, polynomial

SCHEDULE = Schedule(legw, Baseline(lr=0.1, global_batch=16, warmup_epochs=0.5), polynomial(over="training"))
PLAN = {"total_epochs": 4, "samples_per_epoch": 100, "global_batch": 32}


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sgd(*lrs: float) -> torch.optim.SGD:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs])


def lrs_of(optimizer, scheduler, steps: int) -> list[float]:
    lrs = []
    for _ in range(steps):
        lrs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return lrs


def peak_share(epochs: float) -> float:
    """By hand: 32 is twice the baseline's batch, so the ramp takes 2 · 0.5 epochs; then (1 − e/4)²."""
    return epochs if epochs < 1 else (1 - epochs / 4) ** 2


def test_lrs_are_those_of_the_middle_of_each_batch_the_short_one_included():
    optimizer = sgd(0.1)
    lrs = lrs_of(optimizer, as_torch(SCHEDULE, optimizer, **PLAN), 8)
    # 100 samples in batches of 32, 32, 32 and 4: middles at 16, 48, 80 and 98, then 116 ...
    middles = [16, 48, 80, 98, 116, 148, 180, 198]
    assert lrs == pytest.approx([0.1 * 2**0.5 * peak_share(middle / 100) for middle in middles])


@pytest.mark.parametrize("optimizer_first", [True, False])
def test_resume_in_the_middle_goes_on_bit_for_bit(optimizer_first):
    optimizer = sgd(0.1, 0.2)
    scheduler = as_torch(SCHEDULE, optimizer, **PLAN)
    lrs_of(optimizer, scheduler, 6)
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    expected = lrs_of(optimizer, scheduler, 6)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = sgd(0.1, 0.2)
    if optimizer_first:  # torch's own schedulers overwrite the loaded learning rate in this order
        resumed.load_state_dict(saved["optimizer"])
    resumed_scheduler = as_torch(SCHEDULE, resumed, **PLAN)
    if not optimizer_first:
        resumed.load_state_dict(saved["optimizer"])
    resumed_scheduler.load_state_dict(saved["scheduler"])
    assert lrs_of(resumed, resumed_scheduler, 6) == expected
    assert resumed.param_groups[1]["lr"] == optimizer.param_groups[1]["lr"]
    assert resumed_scheduler.state_dict() == scheduler.state_dict()


def test_the_schedulers_state_alone_sets_the_lr():
    optimizer = sgd(0.1)
    scheduler = as_torch(SCHEDULE, optimizer, **PLAN)
    lrs_of(optimizer, scheduler, 6)
    resumed = sgd(0.1)
    resumed_scheduler = as_torch(SCHEDULE, resumed, **PLAN)
    resumed_scheduler.load_state_dict(scheduler.state_dict())
    assert resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert resumed_scheduler.get_last_lr() == scheduler.get_last_lr()


def test_a_changed_batch_changes_lr_and_stride_at_once():
    optimizer = sgd(0.1)
    scheduler = as_torch(SCHEDULE, optimizer, **PLAN)
    lrs_of(optimizer, scheduler, 4)  # one epoch
    scheduler.change_batch(8)
    # 8 is half the baseline's batch: 0.1/√2, its warm-up of a quarter epoch is over; middles at 104, 112
    expected = [0.1 / 2**0.5 * (1 - epochs / 4) ** 2 for epochs in (1.04, 1.12)]
    assert lrs_of(optimizer, scheduler, 2) == pytest.approx(expected)
    again = sgd(0.1)
    resumed = as_torch(SCHEDULE, again, **PLAN)
    resumed.load_state_dict(scheduler.state_dict())
    assert lrs_of(again, resumed, 20) == lrs_of(optimizer, scheduler, 20)


def test_the_first_group_follows_the_schedule_and_the_others_their_proportion():
    optimizer = sgd(3.0, 0.3)
    as_torch(SCHEDULE, optimizer, **PLAN)
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert first == pytest.approx(0.1 * 2**0.5 * 0.16)
    assert second == pytest.approx(first / 10)


def test_an_lr_held_in_a_tensor_stays_that_tensor():
    held = torch.tensor(0.1)
    optimizer = torch.optim.Adam([nn.Parameter(torch.ones(1))], lr=held)
    scheduler = as_torch(SCHEDULE, optimizer, **PLAN)
    optimizer.step()
    scheduler.step()
    scheduler.load_state_dict(scheduler.state_dict())
    assert optimizer.param_groups[0]["lr"] is held
    assert held.item() == pytest.approx(0.1 * 2**0.5 * 0.48)


def test_the_whole_training_ends_near_zero_without_a_warning():
    optimizer = sgd(0.1)
    lrs = lrs_of(optimizer, as_torch(SCHEDULE, optimizer, **PLAN), 16)
    assert min(lrs) > 0
    assert lrs[-1] == min(lrs)
    assert optimizer.param_groups[0]["lr"] == 0  # the training is over


@pytest.mark.parametrize(
    ("name", "value"), [("total_epochs", 0), ("samples_per_epoch", -1), ("global_batch", float("nan"))]
)
def test_a_bad_number_is_named(name, value):
    with pytest.raises(Problem, match=f"{name} is {value}"):
        as_torch(SCHEDULE, sgd(0.1), **{**PLAN, name: value})


def test_a_position_given_by_hand_is_refused():
    scheduler = as_torch(SCHEDULE, sgd(0.1), **PLAN)
    with pytest.raises(ValueError, match=r"step\(3\)"):
        scheduler.step(3)
