"""A stderr that cannot be written to falls silent, once and for all."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from bigbatch.output.terminal import GuardedStream


def test_a_full_disk_silences_and_does_not_ask_to_stop():
    with Path("/dev/full").open("w", buffering=1) as full:
        stream = GuardedStream(full)
        print("lost", file=stream, flush=True)
        print("lost too", file=stream, flush=True)
        assert not stream.reader_left


def test_a_closed_pipe_silences_what_rich_writes_too():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        stream = GuardedStream(pipe)
        Console(file=stream).print("a table")
        assert stream.reader_left
        Console(file=stream).print("another")


def test_what_can_be_written_is_written(tmp_path):
    with (tmp_path / "log").open("w") as file:
        stream = GuardedStream(file)
        assert stream.isatty() is False
        print("a line", file=stream, flush=True)
        assert (tmp_path / "log").read_text() == "a line\n"
