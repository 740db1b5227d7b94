"""Claims on points, so that several workers on one folder, on one or many machines, never run a point twice.

A claim is a file NAME.claim-G that only one process can have created (O_EXCL). Its owner renews the lease by touching
the file every few seconds. When the owner is dead or releases the claim, the next file, G + 1, may be created: again by
one process only, so two workers that find a dead owner at once cannot both take over. Nothing is ever deleted or
renamed, so there is no moment between two steps.

On the same machine, an owner is dead if its process is gone. Elsewhere, clocks may differ, so times are not compared: a
claim whose file has not been touched for LEASE_SECONDS *while we watched* is dead.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem

HEARTBEAT_SECONDS = 10.0
LEASE_SECONDS = 180.0  # several heartbeats, and longer than NFS clients cache a file's times


@cache
def machine_id() -> str:
    """Return the boot and the container in which process numbers are unique."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode()}"


def _process_start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks, or None if it is gone: process numbers are reused."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] == "Z" else after_name[19]


@dataclass(frozen=True)
class Owner:
    """The process that owns a claim or a trial, as it is written into files."""

    host: str
    where: str
    pid: int
    begun: str | None

    @classmethod
    def current(cls) -> Owner:
        return cls(socket.gethostname(), machine_id(), os.getpid(), _process_start_time(os.getpid()))

    @classmethod
    def from_fields(cls, fields: Any) -> Owner | None:
        """Return None if the fields are incomplete: the file may be being written."""
        try:
            return cls(fields["host"], fields["where"], int(fields["pid"]), fields["begun"])
        except (TypeError, KeyError, ValueError):
            return None

    def is_dead(self) -> bool | None:
        """Whether the process is gone, or None if it belongs to another machine."""
        return None if self.where != machine_id() else _process_start_time(self.pid) != self.begun


class LeaseWatch:
    """Finds expired leases by our own clock: a lease is a value that changes as long as its owner lives."""

    def __init__(self, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._last_change: dict[str, tuple[Hashable, float]] = {}

    def is_expired(self, name: str, heartbeat: Hashable) -> bool:
        known = self._last_change.get(name)
        if known is None or known[0] != heartbeat:
            self._last_change[name] = (heartbeat, time.monotonic())
            return False
        return time.monotonic() - known[1] > self.lease_seconds

    def is_abandoned(self, name: str, owner: Owner | None, heartbeat: Hashable) -> bool:
        dead = owner.is_dead() if owner else None
        return self.is_expired(name, heartbeat) if dead is None else dead


class Claims:
    """The claims in a folder, as one worker sees them."""

    def __init__(
        self, folder: Path, lease_seconds: float = LEASE_SECONDS, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self.folder = folder
        self.mine: dict[str, int] = {}  # name -> generation
        self.heartbeat_seconds = heartbeat_seconds
        self._watch = LeaseWatch(lease_seconds)
        self._last_heartbeat = time.monotonic()

    def claim(self, name: str) -> bool:
        """Claim a name. Return False if another worker has it, or was faster."""
        generation = self._latest_generation(name)  # read once: the next one must not exist yet when it is created
        if name in self.mine or (generation and not self._is_given_up(name, generation)):
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path(name, generation + 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except OSError as error:
            raise Problem(f"{self.folder} cannot be written to ({error.strerror}): choose another --out") from error
        with os.fdopen(file, "w") as claim:
            claim.write(json.dumps(asdict(Owner.current())))
        self.mine[name] = generation + 1
        return True

    def release(self, name: str) -> None:
        """Give up a claim, so that others can take the name at once."""
        released = asdict(Owner.current()) | {"released": True}
        atomic.write_text(self._path(name, self.mine.pop(name)), json.dumps(released))

    def is_claimed(self, name: str) -> bool:
        """Whether we or another living worker have claimed it, as far as we know."""
        generation = self._latest_generation(name)
        return name in self.mine or (generation > 0 and not self._is_given_up(name, generation))

    def send_heartbeat(self) -> list[str]:
        """Renew our leases when it is time. Return the names that others have taken over because we seemed dead."""
        if time.monotonic() - self._last_heartbeat < self.heartbeat_seconds:
            return []
        self._last_heartbeat = time.monotonic()
        lost = []
        for name, generation in list(self.mine.items()):
            try:
                os.utime(self._path(name, generation))
            except FileNotFoundError:
                lost.append(name)
            if self._latest_generation(name) > generation:
                lost.append(name)
        for name in lost:
            self.mine.pop(name, None)
        return lost

    def _is_given_up(self, name: str, generation: int) -> bool:
        path = self._path(name, generation)
        try:
            text, heartbeat = path.read_text(), path.stat().st_mtime_ns
            fields = json.loads(text)
        except ValueError:
            fields = {}  # created, but not written yet
        except FileNotFoundError:
            return False
        return bool(fields.get("released")) or self._watch.is_abandoned(path.name, Owner.from_fields(fields), heartbeat)

    def _latest_generation(self, name: str) -> int:
        """Return 0 if nobody ever claimed the name. Generations are created one after another, without gaps."""
        generation = self.mine.get(name, 0)
        while self._path(name, generation + 1).exists():
            generation += 1
        return generation

    def _path(self, name: str, generation: int) -> Path:
        return self.folder / f"{name}.claim-{generation}"
