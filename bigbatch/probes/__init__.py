"""Probes: what a training is asked on the way. A part offers `measure(state, config) -> dict`, and only reads.

A probe's config has `every_steps`. It is asked when the global gradient is in `.grad` and the step not yet taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pydantic import PositiveInt
from torch import nn

from bigbatch import parts
from bigbatch.position import Position


class Config(parts.Config):
    """What every probe's config has."""

    every_steps: PositiveInt = 100


class State(Protocol):
    """What a probe may look at."""

    model: nn.Module


class Probes:
    def __init__(self, configs: Iterable[parts.Config]) -> None:
        self.configs = tuple(configs)

    def measure(self, state: State, position: Position) -> dict[str, Any]:
        """What the probes found whose turn it is, under their names."""
        return {
            config.name: parts.find("probes", config.name).measure(state, config)
            for config in self.configs
            if position.step % config.every_steps == 0  # type: ignore[attr-defined]
        }
