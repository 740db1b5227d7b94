"""Trackers copy the metrics of a run to other tools. metrics.jsonl stays the source.

A part names the module it `NEEDS` and offers `start(config, place) -> Mirror`. Each mirror runs in its own process
(`mirroring/process.py`, started by `launch/mirrors.py`), which reads metrics.jsonl. The training neither waits for the
tool nor fails with it, and finished runs are mirrored in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.libraries import is_installed
from bigbatch.trust import trust_typed


@dataclass
class TrackedRun:
    """The run that is mirrored, and what identifies it in the tool after an interruption."""

    name: str  # of the run's folder
    files: Path  # the mirror's own folder inside the run's
    run: dict[str, Any]  # as run.json describes it
    kept: dict[str, Any] = field(default_factory=dict)  # what a mirror stores here is restored at its next start


class Mirror(Protocol):
    """The connection to a tool."""

    def add(self, step: int, values: dict[str, float]) -> None: ...
    def flush(self) -> None: ...
    def close(self, status: str) -> None: ...


def check_installed(names: Sequence[str]) -> None:
    """Refuse trackers whose tool is not installed, before the training starts. The user typed their names."""
    trust_typed(names)
    for name in names:
        needed = parts.find("trackers", parts.configure("trackers", name).name).NEEDS
        if not is_installed(needed):
            extra = f"'bigbatch[{name}]'" if name in parts.names("trackers") else needed
            raise Problem(f"tracker '{name}' needs {needed}, which is not installed: pip install {extra}")
