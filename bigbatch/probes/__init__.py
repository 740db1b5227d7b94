"""Probes: what a training is asked on the way. A part offers `measure(state, config) -> dict`, and only reads.

A probe's config has `every_steps`. It is asked when the global gradient is in `.grad` and the step not yet taken.
One that says `NEEDS_MICRO_GRADIENTS = True` finds them in `state.gradient.micro_gradients`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import PositiveInt

from bigbatch import parts
from bigbatch.position import Position

if TYPE_CHECKING:
    from torch import nn

    from bigbatch.engines import Engine
    from bigbatch.gradient import GlobalGradient


class Config(parts.Config):
    """What every probe's config has."""

    every_steps: PositiveInt = 100


class State(Protocol):
    """What a probe may look at."""

    model: nn.Module
    engine: Engine
    gradient: GlobalGradient
    history: list[dict[str, Any]]  # rows of earlier probes and tests


class Probes:
    def __init__(self, configs: Iterable[parts.Config]) -> None:
        self.configs = tuple(configs)

    def measure(self, state: State, position: Position) -> dict[str, Any]:
        """What the probes found whose turn it is, under their names."""
        return {config.name: parts.find("probes", config.name).measure(state, config) for config in self._due(position)}

    def see_micro_gradients(self, position: Position) -> bool:
        """Whether one of them wants each micro-batch's gradient at this step."""
        return any(
            getattr(parts.find("probes", config.name), "NEEDS_MICRO_GRADIENTS", False) for config in self._due(position)
        )

    def _due(self, position: Position) -> list[parts.Config]:
        return [config for config in self.configs if position.step % config.every_steps == 0]  # type: ignore[attr-defined]
