"""The contract of a schedule: `lr(position, run) -> float`, a pure function."""

from __future__ import annotations

from math import isclose, isfinite
from types import SimpleNamespace
from typing import Any

from bigbatch import parts, schedules
from bigbatch.position import Position
from bigbatch.testing.common import CheckedPart

_TOTAL_EPOCHS, _SAMPLES = 6, 1000


def check_lr_is_finite_and_positive(part: CheckedPart) -> None:
    """In the middle of every batch of a training, for batches below and above a baseline of 64."""
    for global_batch in (8, 50, 500):
        run = _run(part, global_batch)
        for start in range(0, _TOTAL_EPOCHS * _SAMPLES, global_batch):
            epochs = (start + global_batch / 2) / _SAMPLES
            lr = schedules.lr(Position(epochs, _TOTAL_EPOCHS, global_batch), run)
            assert isfinite(lr), f"lr {lr} at epoch {epochs}"
            assert lr > 0, f"lr {lr} at epoch {epochs}"


def check_lr_depends_on_the_position_alone(part: CheckedPart) -> None:
    run = _run(part, 50)
    positions = [Position(epochs / 4, _TOTAL_EPOCHS, 50) for epochs in range(4 * _TOTAL_EPOCHS)]
    forward = [schedules.lr(position, run) for position in positions]
    backward = [schedules.lr(position, run) for position in reversed(positions)]
    assert forward == backward[::-1]


def check_lr_is_proportional_to_the_optimizers(part: CheckedPart) -> None:
    run, doubled = _run(part, 500), _run(part, 500)
    doubled.optimizer.lr = 0.2
    for epochs in (0.1, 3.0, 5.9):
        position = Position(epochs, _TOTAL_EPOCHS, 500)
        assert isclose(schedules.lr(position, doubled), 2 * schedules.lr(position, run), rel_tol=1e-6)


def _run(part: CheckedPart, global_batch: int) -> Any:
    """The part of a run that a schedule reads."""
    return SimpleNamespace(
        optimizer=SimpleNamespace(lr=0.1),
        schedule=part.configure(),
        global_batch=parts.configure("batch_sizes", global_batch),
    )
