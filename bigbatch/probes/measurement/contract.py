"""The contract of a probe during training: it measures at its interval, around the optimizer's step, and only reads."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

from pydantic import PositiveInt

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.position import Position
from bigbatch.probes.measurement.record import Record, to_json

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from bigbatch.engines import Engine
    from bigbatch.run import Run
    from bigbatch.training.batches import Batch, Batches, Split
    from bigbatch.training.gradient import GlobalGradient

Row = dict[str, Any]  # a row of metrics.jsonl, or a probe's part of one
# A row, or a generator that yields where the step is taken and returns its row after it
Answer = Row | Record | Generator[None, None, Row]


class Unmeasurable(Problem):
    """There is nothing to measure here, such as a gradient that is not finite. Training continues; its row says why."""


class ProbeConfig(parts.Config):
    """The options that every probe has."""

    every_steps: PositiveInt = 100

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """The config of the probe whose file this class is in."""
        config = parts.configure("probes", {"name": cls.__module__.rpartition(".")[2], **options})
        assert isinstance(config, cls)
        return config


class ProbeState(Protocol):
    """What a probe may read: a training just before its step, or a run at rest."""

    run: Run
    model: nn.Module
    optimizer: Optimizer  # with the learning rate of the coming step
    engine: Engine
    batches: Batches
    gradient: GlobalGradient
    batch: Batch  # its gradient, summed over ranks, is in `.grad`
    split: Split
    position: Position
    history: list[Row]  # rows of earlier probes and evaluations
    probes: ProbeSet


class ProbeSet:
    """The probes of a run."""

    def __init__(self, configs: Iterable[parts.Config]) -> None:
        self.configs = tuple(configs)
        # what a probe can start from next time, by its name: for speed alone, lost on resume
        self.memory: dict[str, Any] = {}

    @contextmanager
    def measure_around_step(self, state: ProbeState, position: Position) -> Iterator[Row]:
        """Around the optimizer's step: the rows of the probes that are due, by name, complete after the step."""
        rows: Row = {}
        waiting: dict[str, Generator[None, None, Row]] = {}
        for config in self._due(position):
            try:
                answer: Answer = parts.find("probes", config.name).measure(state, config)
                if isinstance(answer, Generator):
                    next(answer)
                    waiting[config.name] = answer
                else:
                    rows[config.name] = to_json(answer)
            except Unmeasurable as problem:
                rows[config.name] = {"problem": str(problem)}
        yield rows
        for name, answer in waiting.items():
            rows[name] = finish_after_step(answer)

    def need_micro_gradients(self, position: Position) -> bool:
        """Whether a probe that is due reads each micro-batch's gradient."""
        return any(config.needs_micro_gradients for config in self._due(position))

    def _due(self, position: Position) -> list[parts.Config]:
        return [config for config in self.configs if position.step % config.every_steps == 0]  # type: ignore[attr-defined]


def finish_after_step(answer: Generator[None, None, Row]) -> Row:
    """The row of a probe that waited for the step, which has been taken."""
    try:
        next(answer)
    except StopIteration as end:
        row: Row = to_json(end.value)
        return row
    except Unmeasurable as problem:
        return {"problem": str(problem)}
    raise AssertionError("a probe yields once, where the step is taken")


def measured_rows(history: list[Row], name: str) -> Iterator[Row]:
    """The rows of a probe that have a measurement, latest first."""
    return (row[name] for row in reversed(history) if name in row and "problem" not in row[name])


def latest_row(history: list[Row], name: str) -> Row | None:
    return next(measured_rows(history, name), None)
