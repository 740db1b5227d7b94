"""What a probe is while a training runs: asked at its own interval, around the optimizer's step, and only reading."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import PositiveInt

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.position import Position

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from bigbatch.engines import Engine
    from bigbatch.run import Run
    from bigbatch.training.batches import Batch, Batches, Split
    from bigbatch.training.gradient import GlobalGradient


class Unmeasurable(Problem):
    """The model has no answer here, like a gradient that is not finite. A training goes on and its row says why."""


class Config(parts.Config):
    """What every probe's config has."""

    every_steps: PositiveInt = 100


class State(Protocol):
    """What a probe may look at: a training just before its step, or a model that stands still."""

    run: Run
    model: nn.Module
    optimizer: Optimizer  # its learning rate is the one of the coming step
    engine: Engine
    batches: Batches
    gradient: GlobalGradient
    batch: Batch  # whose gradient, summed over ranks, is in `.grad`
    split: Split
    position: Position
    history: list[dict[str, Any]]  # rows of earlier probes and tests
    probes: Probes


# A dict, or a generator that yields where the step is taken and returns its dict after it.
Answer = dict[str, Any] | Generator[None, None, dict[str, Any]]


class Probes:
    def __init__(self, configs: Iterable[parts.Config]) -> None:
        self.configs = tuple(configs)
        # what a probe found and can start from next time, by its name: for speed alone, gone after a resume
        self.memory: dict[str, Any] = {}

    @contextmanager
    def around(self, state: State, position: Position) -> Iterator[dict[str, Any]]:
        """Around the optimizer's step: what the probes found whose turn it is, under their names, after it."""
        found: dict[str, Any] = {}
        waiting: dict[str, Generator[None, None, dict[str, Any]]] = {}
        for config in self._due(position):
            try:
                answer: Answer = parts.find("probes", config.name).measure(state, config)
                if isinstance(answer, dict):
                    found[config.name] = plain(answer)
                else:
                    next(answer)
                    waiting[config.name] = answer
            except Unmeasurable as problem:
                found[config.name] = {"problem": str(problem)}
        yield found
        for name, rest in waiting.items():
            found[name] = plain(finished(rest))

    def see_micro_gradients(self, position: Position) -> bool:
        """Whether one of them wants each micro-batch's gradient at this step."""
        return any(
            getattr(parts.find("probes", config.name), "NEEDS_MICRO_GRADIENTS", False) for config in self._due(position)
        )

    def _due(self, position: Position) -> list[parts.Config]:
        return [config for config in self.configs if position.step % config.every_steps == 0]  # type: ignore[attr-defined]


def finished(rest: Generator[None, None, dict[str, Any]]) -> dict[str, Any]:
    """What a probe says once the step that it waited for is taken."""
    try:
        next(rest)
    except StopIteration as end:
        return end.value
    except Unmeasurable as problem:
        return {"problem": str(problem)}
    raise AssertionError("a probe yields once, where the step is taken")


def plain(value: Any) -> Any:
    """The same as JSON has it: what is not finite is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def last(history: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The latest row of a probe that has an answer."""
    rows = (row[name] for row in reversed(history) if name in row)
    return next((row for row in rows if "problem" not in row), None)
