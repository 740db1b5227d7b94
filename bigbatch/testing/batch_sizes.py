"""The contract of a batch size over time: `at(position, history, config) -> int` and `largest(config) -> int`."""

from __future__ import annotations

from math import isfinite
from types import SimpleNamespace
from typing import Any

from bigbatch import batch_sizes, parts, schedules
from bigbatch.position import Position
from bigbatch.testing.common import CheckedPart

_TOTAL_EPOCHS = 6
_HISTORY: list[dict[str, Any]] = [
    {"epoch": epoch / 2, "train_loss": 1.0, "noise_scale": {"whole": 100.0 * epoch}} for epoch in range(12)
]
_POSITIONS = [Position(tenth / 10, _TOTAL_EPOCHS, 0) for tenth in range(10 * _TOTAL_EPOCHS)]


def check_sizes_are_positive_and_within_the_largest(part: CheckedPart) -> None:
    config = part.configure()
    for position in _POSITIONS:
        history = [row for row in _HISTORY if row["epoch"] <= position.epochs]
        size = batch_sizes.at(position, history, config)
        assert isinstance(size, int)
        assert 0 < size <= batch_sizes.largest(config), f"{size} at epoch {position.epochs}"


def check_sizes_depend_on_position_and_history_alone(part: CheckedPart) -> None:
    config, history = part.configure(), [dict(row) for row in _HISTORY]
    forward = [batch_sizes.at(position, history, config) for position in _POSITIONS]
    backward = [batch_sizes.at(position, history, config) for position in reversed(_POSITIONS)]
    assert forward == backward[::-1]
    assert history == _HISTORY, "the history was changed"


def check_lr_beside_it_is_finite_and_positive(part: CheckedPart) -> None:
    for schedule in ("constant", {"name": "legw", "baseline_batch": 64, "warmup_epochs": 0.5}):
        run: Any = SimpleNamespace(
            optimizer=SimpleNamespace(lr=0.1),
            schedule=parts.configure("schedules", schedule),
            global_batch=part.configure(),
        )
        points = schedules.plan(run, _TOTAL_EPOCHS, points=60)
        assert all(isfinite(point.lr) and point.lr > 0 and point.global_batch > 0 for point in points)
