"""LEGW against the paper's own numbers: Table 1 and Fig. 2 from the 1024 row alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.schedules import Baseline, Schedule, goyal, legw, lr, multi_step, polynomial
from bigbatch.schedules.legw import Config

# Table 1 of You et al. 2018: batch, log2 of the initial learning rate, warm-up epochs; 90 epochs, polynomial of power 2
PAPER = [
    (32768, 5.0, 10.0),
    (16384, 4.5, 5.0),
    (8192, 4.0, 2.5),
    (4096, 3.5, 1.25),
    (2048, 3.0, 0.625),
    (1024, 2.5, 0.3125),
]
ROW_1024 = Baseline(lr=2**2.5, global_batch=1024, warmup_epochs=0.3125)


def at(epochs: float, global_batch: int, total_epochs: float = 90) -> Position:
    return Position(epochs=epochs, total_epochs=total_epochs, global_batch=global_batch)


@pytest.mark.parametrize(("global_batch", "log2_lr", "warmup_epochs"), PAPER)
def test_table_1_follows_from_its_1024_row(global_batch, log2_lr, warmup_epochs):
    peak = legw(ROW_1024, global_batch)
    assert peak.lr == pytest.approx(2**log2_lr, rel=1e-12)
    assert peak.warmup_epochs == warmup_epochs
    assert (peak.warmup_from, peak.warmup) == (0.0, "gradual")


@pytest.mark.parametrize(("global_batch", "log2_lr", "warmup_epochs"), PAPER)
def test_every_row_scales_down_to_the_1024_row(global_batch, log2_lr, warmup_epochs):
    peak = legw(Baseline(2**log2_lr, global_batch, warmup_epochs), 1024)
    assert peak.lr == pytest.approx(2**2.5, rel=1e-12)
    assert peak.warmup_epochs == 0.3125


@pytest.mark.parametrize(("global_batch", "log2_lr", "warmup_epochs"), PAPER)
def test_figure_2_multi_step(global_batch, log2_lr, warmup_epochs):
    # section 3.2, whose "0.3125 epochs (35,190 iterations)" are 391 iterations: 35,190 would be 28 epochs.
    # From 0 to the peak, the peak to epoch 30, a tenth to 60, a hundredth to 80, a thousandth to 90
    schedule, peak = Schedule(legw, ROW_1024, multi_step(30, 60, 80)), 2**log2_lr
    epochs = [0, warmup_epochs / 4, warmup_epochs, 29.999, 30, 59.999, 60, 79.999, 80, 89.999]
    expected = [0, 1 / 4, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    lrs = [schedule(at(epoch, global_batch)) for epoch in epochs]
    assert lrs == pytest.approx([peak * share for share in expected], rel=1e-12)


@pytest.mark.parametrize(("global_batch", "log2_lr", "warmup_epochs"), PAPER)
def test_figure_2_polynomial(global_batch, log2_lr, warmup_epochs):
    # section 3.2: η(1 − i/I)² with i counted from the start of the training, also behind a long warm-up
    schedule, peak = Schedule(legw, ROW_1024, polynomial(over="training")), 2**log2_lr
    epochs = [warmup_epochs / 2, 45, 81, 90]
    assert [schedule(at(epoch, global_batch)) for epoch in epochs] == pytest.approx(
        [peak / 2, peak / 4, peak / 100, 0], rel=1e-12
    )


def test_polynomial_over_what_the_warmup_leaves():
    # warm-up 10 of 90 epochs: at epoch 50 half of the remaining 80 are gone; over the whole training (40/90)²
    after = Schedule(legw, ROW_1024, polynomial())
    assert after(at(10, 32768)) == pytest.approx(32)
    assert after(at(50, 32768)) == pytest.approx(32 / 4)
    papers = Schedule(legw, ROW_1024, polynomial(over="training"))
    assert papers(at(50, 32768)) == pytest.approx(32 * (40 / 90) ** 2)
    # continuous where the warm-up ends: the paper's form drops there
    assert after(at(10 - 1e-9, 32768)) == pytest.approx(after(at(10 + 1e-9, 32768)), rel=1e-6)
    assert papers(at(10 + 1e-9, 32768)) / papers(at(10 - 1e-9, 32768)) == pytest.approx((80 / 90) ** 2)


def test_the_part_is_the_function_with_the_optimizers_lr():
    run = SimpleNamespace(
        optimizer=SimpleNamespace(lr=2**2.5),
        schedule=Config(baseline_batch=1024, warmup_epochs=0.3125, decay=multi_step(30, 60, 80)),
        global_batch=parts.configure("batch_sizes", 8192),
    )
    assert [lr(at(epochs, 8192), run) for epochs in (1.25, 2.5, 30)] == pytest.approx([8, 16, 1.6])


def test_a_changed_batch_has_the_lr_of_a_training_at_that_batch():
    schedule = Schedule(legw, ROW_1024, polynomial(over="training"))
    assert schedule(at(45, 4096)) / schedule(at(45, 1024)) == pytest.approx(2)  # 4 times the batch; linear gives 4
    assert schedule(at(1, 32768)) == pytest.approx(32 / 10)  # in the ramp that 1024 left at epoch 0.3125


def test_goyal_climbs_from_the_baselines_lr_in_five_epochs():
    baseline = Baseline(lr=0.1, global_batch=256)
    schedule = Schedule(goyal, baseline, multi_step(30, 60, 80))
    # 8192 = 32 · 256: from 0.1 to 3.2; a ramp from 0 would have 1.6 in the middle
    assert [schedule(at(epochs, 8192)) for epochs in (0, 2.5, 5, 30)] == pytest.approx([0.1, 1.65, 3.2, 0.32])
    assert schedule(at(0, 64)) == pytest.approx(0.025)  # scaled down: nothing to climb


def test_a_warmup_longer_than_the_training_is_refused():
    schedule = Schedule(legw, ROW_1024, polynomial())
    with pytest.raises(Problem, match=r"warmup_epochs is 10 at global batch 32768, longer than .* 9 epochs"):
        schedule(at(0, 32768, total_epochs=9))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lr": -0.1}, "lr is -0.1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"warmup_epochs": float("inf")}, "warmup_epochs is inf"),
        ({"warmup_epochs": -1.0}, "warmup_epochs is -1.0"),
    ],
)
def test_a_bad_number_is_named(options, named):
    with pytest.raises(Problem, match=named):
        Baseline(**{"lr": 0.1, "global_batch": 128, **options})


@pytest.mark.parametrize("rule", [legw, goyal])
def test_a_bad_target_batch_is_named(rule):
    with pytest.raises(Problem, match="global_batch is 0"):
        rule(ROW_1024, 0)
