"""Which point is next, for a worker among several: what is finished is skipped, what somebody else runs is left."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.child import Child
from bigbatch.sweeps.claims import Claims
from bigbatch.sweeps.rows import FINISHED


class Queue(Protocol):
    """What a worker asks."""

    total: int

    def datasets(self) -> list[str]:
        """Names of the datasets that will be read."""

    def next(self) -> Point | None:
        """A point that is ours to run now."""

    def ended(self, point: Point, problem: str | None) -> None:
        """Its run is finished, or failed with a problem."""

    def give_back(self, point: Point) -> None:
        """Its run was stopped: it goes on later, here or elsewhere."""

    def unpromising(self, child: Child) -> bool:
        """Whether a run under way is not worth its end."""

    def finished(self) -> int:
        """How many points need no more work, whoever did it."""

    def beat(self) -> list[Point]:
        """Show that we live. Gives points that were taken from us."""


class Points:
    """A fixed list of points, divided by claims."""

    def __init__(self, points: Iterable[Point], sweep_folder: Path, claims: Claims | None = None) -> None:
        self.runs = sweep_folder / "runs"
        self.work = sweep_folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.claims = claims or Claims(self.work)
        self.left = list(points)
        self.total = len(self.left)
        # whoever starts a worker wants what failed before tried again; what fails from now on is left alone
        self._failed_before = {point.hash: failure(self.work, point.hash) for point in self.left}

    def datasets(self) -> list[str]:
        return sorted({point.run.dataset.name for point in self.left})

    def next(self) -> Point | None:
        for point in list(self.left):
            if point.hash in self.claims.mine:
                continue
            if self._needs_no_more(point):
                self.left.remove(point)
            elif self._free(point) and self.claims.take(point.hash):
                # looked at again: it may have been finished between the first look and the claim
                if not self._needs_no_more(point):
                    return point
                self.left.remove(point)
                self.claims.release(point.hash)
        return None

    def ended(self, point: Point, problem: str | None) -> None:
        path = self.work / f"{point.hash}.failed"
        if problem is None:
            path.unlink(missing_ok=True)
        else:
            atomic.write_text(path, json.dumps({"problem": problem, "token": uuid.uuid4().hex}))
        self.left.remove(point)
        self.claims.release(point.hash)

    def give_back(self, point: Point) -> None:
        if point.hash in self.claims.mine:
            self.claims.release(point.hash)

    def unpromising(self, child: Child) -> bool:
        return False

    def finished(self) -> int:
        self.left = [p for p in self.left if p.hash in self.claims.mine or not self._needs_no_more(p)]
        return self.total - len(self.left)

    def beat(self) -> list[Point]:
        lost = self.claims.beat()
        return [point for point in self.left if point.hash in lost]

    def _free(self, point: Point) -> bool:
        """Nobody has claimed it, and nobody who knows nothing of claims trains it."""
        return not self.claims.held(point.hash) and Folder(self.runs / point.folder_name).lock_holder_pid() is None

    def _needs_no_more(self, point: Point) -> bool:
        if Folder(self.runs / point.folder_name).status in FINISHED:
            return True
        failed = failure(self.work, point.hash)
        return failed is not None and failed != self._failed_before[point.hash]


def failure(work: Path, name: str) -> dict[str, str] | None:
    """Why a point failed, if it did."""
    try:
        found = json.loads((work / f"{name}.failed").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        found = None
    return found if isinstance(found, dict) and "problem" in found else {"problem": "for a reason that cannot be read"}
