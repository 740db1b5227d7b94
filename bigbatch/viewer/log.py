"""NAME.view.jsonl: what a person did, one line an event, on disk before the answer. Never rewritten."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import warnings
from pathlib import Path
from typing import Any

from bigbatch.errors import Notice, Problem
from bigbatch.viewer.refused import Refused

Event = dict[str, Any]


class Log:
    """Appends events; holds the file alone, so that two servers cannot write into one another's history."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("ab+", buffering=0)
        except OSError as error:
            raise Problem(
                f"{path} cannot be written to ({error.strerror}), so nothing that you do could be saved: "
                "choose a folder for it with --out"
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
        """All events. A line that a kill or a full disk cut short is taken off, and said."""
        self._file.seek(0)
        content = self._file.read()
        events: list[Event] = []
        whole_bytes = 0
        lines = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            ended = number < len(lines)
            event = _parsed(line) if ended else None
            if event is None:
                if number < len(lines) - 1:
                    raise Problem(f"line {number} of {self.path} is not a whole event: mend or remove it")
                break
            events.append(event)
            whole_bytes += len(line) + 1
        if whole_bytes < len(content):
            warnings.warn(
                Notice(
                    f"the last line of {self.path} was cut short ({len(content) - whole_bytes} bytes) and is left out; "
                    f"the {len(events)} lines before it are kept"
                ),
                stacklevel=2,
            )
            self._file.truncate(whole_bytes)
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
            raise Refused(
                f"{self.path} could not be written ({error.strerror}): make room there, then repeat", 507
            ) from error

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._file.fileno()).st_size == 0

    def close(self) -> None:
        """A file in which nothing happened is no use to anybody."""
        if self._file.closed:
            return
        if self.is_empty:
            self.path.unlink(missing_ok=True)
        self._file.close()


def _parsed(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None
