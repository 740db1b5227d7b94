"""Who runs which point, so that several workers on one folder, on one machine or on many, never run a point twice.

A claim is a file NAME.claim-G that only one process can have made (O_EXCL). Its holder touches it every few seconds.
When the holder is dead or gives the claim up, the next file, G + 1, may be made: again by one process only, so two
that find a dead holder at once cannot both follow it. Nothing is ever deleted or renamed, so there is no moment
between two steps.

Whether a holder is dead: on this machine its process is looked for. Elsewhere, clocks may differ, so times are not
compared; a claim whose file has not been touched for LEASE_SECONDS *while we watched* is dead.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem

BEAT_SECONDS = 10.0
LEASE_SECONDS = 180.0  # several beats, and longer than NFS clients keep a file's times in mind


@cache
def here() -> str:
    """This machine since its last start, and this container in it: where process numbers mean the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"


def _begun(pid: int) -> str | None:
    """When a process began, in the system's own count; None where there is none. Numbers are used again, pairs not."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] == "Z" else after_name[19]


def myself() -> dict[str, Any]:
    return {"host": socket.gethostname(), "where": here(), "pid": os.getpid(), "begun": _begun(os.getpid())}


def dead_here(holder: dict[str, Any]) -> bool | None:
    """Whether a process of this machine is gone; None where it belongs to another."""
    if holder.get("where") != here() or not isinstance(holder.get("pid"), int):
        return None
    return _begun(holder["pid"]) != holder.get("begun")


class Watch:
    """Something that changes as long as its owner lives, watched by our own clock."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._seen: dict[str, tuple[Any, float]] = {}

    def expired(self, name: str, beat: Any) -> bool:
        known = self._seen.get(name)
        if known is None or known[0] != beat:
            self._seen[name] = (beat, time.monotonic())
            return False
        return time.monotonic() - known[1] > self.lease_seconds


class Claims:
    """The claims in a folder, as one worker sees them."""

    def __init__(self, folder: Path, lease_seconds: float = LEASE_SECONDS, beat_seconds: float = BEAT_SECONDS) -> None:
        self.folder = folder
        self.mine: dict[str, int] = {}  # name -> generation
        self.beat_seconds = beat_seconds
        self._watch = Watch(lease_seconds)
        self._beaten = time.monotonic()

    def take(self, name: str) -> bool:
        """Whether the claim is ours now. False where somebody else has it, or was a moment faster."""
        generation = self._latest(name)
        if name in self.mine or (generation and not self._given_up(name, generation)):
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path(name, generation + 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except OSError as error:
            raise Problem(f"{self.folder} cannot be written to ({error.strerror}): choose another --out") from error
        with os.fdopen(file, "w") as claim:
            claim.write(json.dumps(myself()))
        self.mine[name] = generation + 1
        return True

    def release(self, name: str) -> None:
        """Let others go on at once."""
        atomic.write_text(self._path(name, self.mine.pop(name)), json.dumps({**myself(), "released": True}))

    def held(self, name: str) -> bool:
        """Whether anybody alive has it, as far as we know."""
        generation = self._latest(name)
        return name in self.mine or (generation > 0 and not self._given_up(name, generation))

    def beat(self) -> list[str]:
        """Show, now and then, that we live. Gives what was taken from us, because we seemed dead."""
        if time.monotonic() - self._beaten < self.beat_seconds:
            return []
        self._beaten = time.monotonic()
        lost = []
        for name, generation in list(self.mine.items()):
            try:
                os.utime(self._path(name, generation))
            except FileNotFoundError:
                lost.append(name)
            if self._latest(name) > generation:
                lost.append(name)
        for name in lost:
            self.mine.pop(name, None)
        return lost

    def _given_up(self, name: str, generation: int) -> bool:
        path = self._path(name, generation)
        try:
            text, beat = path.read_text(), path.stat().st_mtime_ns
            holder = json.loads(text)
        except ValueError:
            holder = {}  # made, but not written yet
        except FileNotFoundError:
            return False
        if holder.get("released"):
            return True
        dead = dead_here(holder)
        return self._watch.expired(path.name, beat) if dead is None else dead

    def _latest(self, name: str) -> int:
        """The newest generation; 0 where nobody ever had it. They are made one after another, without gaps."""
        generation = self.mine.get(name, 0)
        while self._path(name, generation + 1).exists():
            generation += 1
        return generation

    def _path(self, name: str, generation: int) -> Path:
        return self.folder / f"{name}.claim-{generation}"
