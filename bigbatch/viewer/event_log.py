"""NAME.view.jsonl: what a person did, one line per event. It is on disk before the answer and never rewritten."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import warnings
from pathlib import Path
from typing import Any

from bigbatch.errors import Notice, Problem
from bigbatch.viewer.requests import RequestError

Event = dict[str, Any]


class EventLog:
    """Appends events. It locks the file, so that two servers cannot write to one log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise Problem(
                f"{path} cannot be written to ({error.strerror}), so nothing could be saved: choose a folder with --out"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise Problem(
                f"{path.with_name(path.name.removesuffix('.view.jsonl'))} is being viewed by another server: "
                "open its address, or stop it first"
            ) from error

    def read(self) -> list[Event]:
        """Return all events. A last line that was cut short by a kill or a full disk is removed with a notice."""
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        events: list[Event] = []
        for number, line in enumerate(lines, start=1):
            try:
                event = json.loads(line if line.endswith(b"\n") else b"")
                if not isinstance(event, dict):
                    raise ValueError
            except ValueError:
                if number < len(lines):
                    raise Problem(f"line {number} of {self.path} is not a complete event: fix or remove it") from None
                warnings.warn(
                    Notice(
                        f"the last line of {self.path} was cut short ({len(line)} bytes) and removed; "
                        f"the {len(events)} lines before it are kept"
                    ),
                    stacklevel=2,
                )
                self._file.truncate(sum(map(len, lines[:-1])))
                break
            events.append(event)
        return events

    def append(self, event: Event) -> None:
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # only part of the line fitted
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), size)
            raise RequestError(
                f"{self.path} could not be written ({error.strerror}): free space there, then repeat", 507
            ) from error

    def close(self) -> None:
        """Close the file, and remove it where it is empty."""
        if self._file.closed:
            return
        if os.fstat(self._file.fileno()).st_size == 0:
            self.path.unlink(missing_ok=True)
        self._file.close()
