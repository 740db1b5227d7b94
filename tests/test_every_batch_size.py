"""What holds for every batch size over time, found by looking at the folder."""

from __future__ import annotations

from math import isfinite
from types import SimpleNamespace

import pytest

from bigbatch import batch_sizes, parts, schedules
from bigbatch.position import Position

TOTAL_EPOCHS = 6
# options by which each one changes within the training; a new file is asked for its own here
OPTIONS = {
    "constant": {"global_batch": 96},
    "steps": {"stages": [{"from_epoch": 0, "global_batch": 32, "lr": 0.01}, {"from_epoch": 1, "global_batch": 256}]},
    "increase": {"start": 32, "maximum": 256, "decay": {"kind": "multi_step", "at_epochs": [2, 4]}},
    "noise_scale": {"start": 64, "minimum": 32, "maximum": 512},
}
HISTORY = [{"epoch": epoch / 2, "train_loss": 1.0, "noise_scale": {"whole": 100.0 * epoch}} for epoch in range(12)]


def config_of(name: str) -> parts.Config:
    return parts.configure("batch_sizes", {"name": name, **OPTIONS.get(name, {})})


def positions() -> list[Position]:
    return [Position(tenth / 10, TOTAL_EPOCHS, 0) for tenth in range(10 * TOTAL_EPOCHS)]


def so_far(position: Position) -> list[dict[str, float]]:
    return [row for row in HISTORY if row["epoch"] <= position.epochs]


@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_batches_are_whole_positive_and_within_the_largest(name):
    config = config_of(name)
    sizes = [batch_sizes.at(position, so_far(position), config) for position in positions()]
    assert all(isinstance(size, int) and 0 < size <= batch_sizes.largest(config) for size in sizes)


@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_a_batch_depends_on_position_and_history_alone(name):
    config, history = config_of(name), [dict(row) for row in HISTORY]
    forward = [batch_sizes.at(position, history, config) for position in positions()]
    backward = [batch_sizes.at(position, history, config) for position in reversed(positions())]
    assert forward == backward[::-1]
    assert history == HISTORY


@pytest.mark.parametrize("schedule", ["constant", {"name": "legw", "baseline_batch": 64, "warmup_epochs": 0.5}])
@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_the_lr_that_goes_with_it_is_finite_and_positive(name, schedule):
    run = SimpleNamespace(
        optimizer=SimpleNamespace(lr=0.1),
        schedule=parts.configure("schedules", schedule),
        global_batch=config_of(name),
    )
    points = schedules.plan(run, TOTAL_EPOCHS, points=60)
    assert all(isfinite(point.lr) and point.lr > 0 and point.global_batch > 0 for point in points)


@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_options_survive_json_and_are_frozen(name):
    config = config_of(name)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert config.name == name
    with pytest.raises(ValueError):
        config.name = "other"


@pytest.mark.parametrize("name", parts.names("batch_sizes"))
def test_the_docstring_names_what_it_is(name):
    assert 20 < len(parts.summary("batch_sizes", name)) <= 120
    assert parts.summary("batch_sizes", name).endswith(".")
