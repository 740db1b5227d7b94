"""Which point a worker runs next: finished points are skipped, points that another worker runs are left to it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.sweeps.claims import Claims
from bigbatch.sweeps.config import SweepPoint


def read_failure(work: Path, name: str) -> tuple[str, str] | None:
    """Return why a point failed, if it did, and a token that tells this failure from the next."""
    try:
        fields = json.loads((work / f"{name}.failed").read_text(encoding="utf-8"))
        return str(fields["problem"]), str(fields.get("token", ""))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return "for a reason that cannot be read", ""


def write_failure(work: Path, name: str, problem: str) -> None:
    atomic.write_text(work / f"{name}.failed", json.dumps({"problem": problem, "token": uuid.uuid4().hex}))


class PointQueue:
    """A fixed list of points, divided among workers by claims."""

    def __init__(self, points: Iterable[SweepPoint], sweep_folder: Path) -> None:
        self.runs = sweep_folder / "runs"
        self.work = sweep_folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.claims = Claims(self.work)
        self.left = list(points)
        self.total = len(self.left)
        self.datasets = sorted({point.run.dataset.name for point in self.left})  # that the runs read
        # a new worker retries what failed before it started, but not what fails from now on
        self._failed_before = {point.hash: read_failure(self.work, point.hash) for point in self.left}

    def claim_next(self) -> SweepPoint | None:
        """Claim a point to run now."""
        for point in list(self.left):
            if point.hash in self.claims.mine:
                continue
            if self._is_finished(point):
                self.left.remove(point)
            elif Folder(self.runs / point.folder_name).lock_holder_pid() is None and self.claims.claim(point.hash):
                # checked again: another worker may have finished it between the check and the claim
                if not self._is_finished(point):
                    return point
                self.left.remove(point)
                self.claims.release(point.hash)
        return None

    def finish(self, point: SweepPoint, problem: str | None) -> None:
        """Record that a point's run has finished, or has failed with a problem."""
        if problem is None:
            (self.work / f"{point.hash}.failed").unlink(missing_ok=True)
        else:
            write_failure(self.work, point.hash, problem)
        self.left.remove(point)
        self.claims.release(point.hash)

    def release(self, point: SweepPoint) -> None:
        """Give up the claim on a point whose run was stopped: it is resumed later by any worker."""
        if point.hash in self.claims.mine:
            self.claims.release(point.hash)

    def should_prune(self, point: SweepPoint) -> bool:
        """Whether a run is unlikely to be among the best and is stopped early."""
        return False

    def count_finished(self) -> int:
        """Return how many points need no more work, whoever did it."""
        self.left = [p for p in self.left if p.hash in self.claims.mine or not self._is_finished(p)]
        return self.total - len(self.left)

    def send_heartbeat(self) -> list[SweepPoint]:
        """Renew the leases of our claims. Return the points that another worker has taken over."""
        lost = self.claims.send_heartbeat()
        return [point for point in self.left if point.hash in lost]

    def _is_finished(self, point: SweepPoint) -> bool:
        if Folder(self.runs / point.folder_name).status in ("done", "diverged"):
            return True
        failure = read_failure(self.work, point.hash)
        return failure is not None and failure != self._failed_before[point.hash]
