"""A stderr that falls silent when nobody can read it any more, so that what is shown never ends what is computed."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, TextIO, cast


class GuardedStream:
    """A text stream that falls silent once it cannot be written to: a closed pipe or terminal, a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.reader_left = False  # the pipe was closed at its other end

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError) as error:
            self._fall_silent(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._fall_silent(error)

    def _fall_silent(self, error: Exception) -> None:
        self.reader_left = isinstance(error, BrokenPipeError)
        silent = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        with suppress(OSError, ValueError):  # what is still buffered is flushed when the interpreter ends
            os.dup2(silent.fileno(), self._stream.fileno())
        self._stream = silent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guarded_stderr() -> TextIO:
    """Return stderr as it is now, guarded."""
    guarded = sys.stderr if isinstance(sys.stderr, GuardedStream) else GuardedStream(sys.stderr)
    return cast("TextIO", guarded)


def guard_stderr() -> None:
    """Let this process write to a guarded stderr, whoever in it writes."""
    sys.stderr = guarded_stderr()


def reader_left() -> bool:
    """Whether a guarded stderr was a pipe whose reader has gone."""
    return isinstance(sys.stderr, GuardedStream) and sys.stderr.reader_left
