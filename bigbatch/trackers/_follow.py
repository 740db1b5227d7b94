"""Reads metrics.jsonl behind a training and hands what is new to one mirror, until stdin ends.

Steps that were mirrored once are not mirrored again: a resumed run makes the rows after its checkpoint anew, to the
bit. The last step of each number is noted beside the run (`trackers/<name>.json`).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import parse_row, scalars
from bigbatch.trackers import Mirror, Place

_SECONDS_BETWEEN_LOOKS = 1.0
_KEPT_TO_ITSELF = ("step",)  # the axis of all others


class Lines:
    """The whole lines that a file has gained. One that was put in its place is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def new(self) -> Iterator[bytes]:
        try:
            if self._file is None or os.fstat(self._file.fileno()).st_ino != self.path.stat().st_ino:
                self._file = self.path.open("rb")
        except FileNotFoundError:
            return
        while True:
            start = self._file.tell()
            line = self._file.readline()
            if not line.endswith(b"\n"):  # not whole yet
                self._file.seek(start)
                return
            yield line


class Following:
    """One run and its mirror, which is started with the first row."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.config = parts.configure("trackers", name)
        self.note = folder / "trackers" / f"{name}.json"
        self.lines = Lines(folder / "metrics.jsonl")
        self.last_steps: dict[str, int] = {}
        self.mirror: Mirror | None = None

    def look(self) -> None:
        """Mirror what is new, and note it once the tool has it."""
        for line in self.lines.new():
            row = parse_row(line)
            self.mirror = self.mirror or self._start()
            step: int = row["step"]
            new = {
                name: value
                for name, value in scalars(row).items()
                if name not in _KEPT_TO_ITSELF and step > self.last_steps.get(name, -1)
            }
            if new:
                self.mirror.add(step, new)
                self.last_steps |= dict.fromkeys(new, step)
        if self.mirror:
            self.mirror.flush()
            self._write_note()

    def end(self) -> None:
        if self.mirror:
            status = self.folder / "status"
            self.mirror.close(status.read_text().strip() if status.exists() else "running")
            self._write_note()

    def _start(self) -> Mirror:
        known = json.loads(self.note.read_text(encoding="utf-8")) if self.note.exists() else {}
        about = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        self.last_steps = known.get("last_steps", {})
        files = self.folder / "trackers" / self.config.name
        files.mkdir(parents=True, exist_ok=True)
        self.place = Place(self.folder.resolve().name, files, about["run"], known.get("kept", {}))
        return parts.find("trackers", self.config.name).start(self.config, self.place)

    def _write_note(self) -> None:
        atomic.write_text(self.note, json.dumps({"last_steps": self.last_steps, "kept": self.place.kept}))


def follow(folder: Path, name: str, ended: Callable[[], bool]) -> None:
    """Until `ended`, which waits a moment each time, says so; then once more for the rest."""
    with (folder / "trackers" / f".{name}.lock").open("w") as lock:
        # the mirror of a training that was killed a moment ago may still be at its last rows
        fcntl.flock(lock, fcntl.LOCK_EX)
        following = Following(folder, name)
        going = True
        while going:
            going = not ended()
            following.look()
        following.end()


def _stdin_ended() -> bool:
    return bool(select.select([sys.stdin], [], [], _SECONDS_BETWEEN_LOOKS)[0])


def main() -> None:
    os.nice(10)  # the training comes first
    folder, name = Path(sys.argv[1]), sys.argv[2]
    try:
        follow(folder, name, _stdin_ended)
    except Exception as error:  # whatever a tool throws: its last line is what the training's process tells
        import traceback

        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".partition("\n")[0], file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
