"""Trackio (Hugging Face): a local database in the project `bigbatch`; `trackio show` opens it."""

from __future__ import annotations

import uuid
from typing import Any

from bigbatch import parts
from bigbatch.trackers import TrackedRun

NEEDS = "trackio"


class Config(parts.Config):
    project: str = "bigbatch"


class TrackioRun:
    def __init__(self, config: Config, place: TrackedRun) -> None:
        import trackio

        # its runs are told apart by their names, and two runs folders may have folders of one name
        name = place.kept.setdefault("run_name", f"{place.name}-{uuid.uuid4().hex[:6]}")
        self._run: Any = trackio.init(project=config.project, name=name, config=place.run, resume="allow", embed=False)

    def add(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def flush(self) -> None:
        pass  # it writes by itself

    def close(self, status: str) -> None:
        self._run.finish()


start = TrackioRun
