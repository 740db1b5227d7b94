"""Horovod under horovodrun: gradients travel one by one, fused on their way, and are summed once a global batch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from bigbatch import parts
from bigbatch.errors import Problem


class Config(parts.Config):
    """Horovod's own settings with its own defaults."""

    fusion_mb: NonNegativeFloat = 128.0  # gradients that are ready in the same cycle share buffers of this size
    cycle_ms: NonNegativeFloat = 1.0  # how often ranks agree on which gradients are ready everywhere
    cache_capacity: NonNegativeInt = 1024  # names whose agreement costs one bit; 0: each is told to rank 0 in full
    timeline: Path | None = None  # rank 0 writes here what Horovod did and when, for chrome://tracing
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: PositiveFloat = 300.0


def check_installed() -> None:
    if importlib.util.find_spec("horovod") is None:
        raise Problem("engine 'horovod' needs Horovod, which is not installed here: 'make horovod' builds it")


def start(config: Config) -> Any:
    check_installed()
    raise NotImplementedError
