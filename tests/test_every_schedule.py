"""What holds for every schedule, found by looking at the folder: a new file is tested unasked."""

from __future__ import annotations

from math import isfinite
from types import SimpleNamespace

import pytest

from bigbatch import parts, schedules
from bigbatch.position import Position

TOTAL_EPOCHS, SAMPLES = 6, 1000

# what a part may not do without
NEEDED = {"baseline_batch": 64, "warmup_epochs": 0.5}


def config_of(name: str) -> parts.Config:
    fields = parts.find("schedules", name).Config.model_fields
    needed = {key: value for key, value in NEEDED.items() if key in fields and fields[key].is_required()}
    return parts.configure("schedules", {"name": name, **needed})


def run_of(name: str, global_batch: int) -> SimpleNamespace:
    return SimpleNamespace(
        optimizer=SimpleNamespace(lr=0.1),
        schedule=config_of(name),
        global_batch=parts.configure("batch_sizes", global_batch),
    )


def lrs(name: str, global_batch: int) -> list[float]:
    """Over all of a training, each in the middle of its batch."""
    run, starts = run_of(name, global_batch), range(0, TOTAL_EPOCHS * SAMPLES, global_batch)
    middles = [(start + global_batch / 2) / SAMPLES for start in starts]
    return [schedules.lr(Position(epochs, TOTAL_EPOCHS, global_batch), run) for epochs in middles]


@pytest.mark.parametrize("name", parts.names("schedules"))
def test_lrs_are_finite_and_positive_over_the_whole_training(name):
    for global_batch in (8, 50, 500):  # below and above the baseline
        assert all(isfinite(lr) and lr > 0 for lr in lrs(name, global_batch))


@pytest.mark.parametrize("name", parts.names("schedules"))
def test_an_lr_depends_on_the_position_alone(name):
    run = run_of(name, 50)
    positions = [Position(epochs / 4, TOTAL_EPOCHS, 50) for epochs in range(4 * TOTAL_EPOCHS)]
    forward = [schedules.lr(position, run) for position in positions]
    backward = [schedules.lr(position, run) for position in reversed(positions)]
    assert forward == backward[::-1]


@pytest.mark.parametrize("name", parts.names("schedules"))
def test_the_lr_is_proportional_to_the_optimizers(name):
    run, doubled = run_of(name, 500), run_of(name, 500)
    doubled.optimizer.lr = 0.2
    for epochs in (0.1, 3.0, 5.9):
        position = Position(epochs, TOTAL_EPOCHS, 500)
        assert schedules.lr(position, doubled) == pytest.approx(2 * schedules.lr(position, run))


@pytest.mark.parametrize("name", parts.names("schedules"))
def test_options_survive_json_and_are_frozen(name):
    config = config_of(name)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert config.name == name
    with pytest.raises(ValueError):
        config.name = "other"


@pytest.mark.parametrize("name", parts.names("schedules"))
def test_the_docstring_names_what_it_is(name):
    assert 20 < len(parts.summary("schedules", name)) <= 120
    assert parts.summary("schedules", name).endswith(".")
