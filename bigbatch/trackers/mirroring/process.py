"""Read metrics.jsonl during a training and send new rows to one mirror, until stdin ends.

A step is mirrored only once: a resumed run writes the rows after its checkpoint again, bit for bit. The last step of
each metric is stored in the run's folder (`trackers/<name>.json`).
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
from bigbatch.trackers import Mirror, TrackedRun

_SECONDS_BETWEEN_READS = 1.0
_NOT_MIRRORED = ("step",)  # the axis of all others


class AppendedLines:
    """The complete lines that were appended to a file. A file that replaces it is read from its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def read_new(self) -> Iterator[bytes]:
        try:
            if self._file is None or os.fstat(self._file.fileno()).st_ino != self.path.stat().st_ino:
                self._file = self.path.open("rb")
        except FileNotFoundError:
            return
        while True:
            start = self._file.tell()
            line = self._file.readline()
            if not line.endswith(b"\n"):  # not complete yet
                self._file.seek(start)
                return
            yield line


class MetricsMirror:
    """One run and its mirror, which is started with the first row."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.config = parts.configure("trackers", name)
        self.state_file = folder / "trackers" / f"{name}.json"
        self.lines = AppendedLines(folder / "metrics.jsonl")
        self.last_steps: dict[str, int] = {}
        self.mirror: Mirror | None = None

    def send_new_rows(self) -> None:
        """Send new rows to the tool, then store how far it got."""
        for line in self.lines.read_new():
            row = parse_row(line)
            self.mirror = self.mirror or self._start_mirror()
            step: int = row["step"]
            new = {
                name: value
                for name, value in scalars(row).items()
                if name not in _NOT_MIRRORED and step > self.last_steps.get(name, -1)
            }
            if new:
                self.mirror.add(step, new)
                self.last_steps |= dict.fromkeys(new, step)
        if self.mirror:
            self.mirror.flush()
            self._save_state()

    def close(self) -> None:
        """Tell the tool how the run ended."""
        if self.mirror:
            status = self.folder / "status"
            self.mirror.close(status.read_text().strip() if status.exists() else "running")
            self._save_state()

    def _start_mirror(self) -> Mirror:
        known = json.loads(self.state_file.read_text(encoding="utf-8")) if self.state_file.exists() else {}
        about = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        self.last_steps = known.get("last_steps", {})
        files = self.folder / "trackers" / self.config.name
        files.mkdir(parents=True, exist_ok=True)
        self.place = TrackedRun(self.folder.resolve().name, files, about["run"], known.get("kept", {}))
        mirror: Mirror = parts.find("trackers", self.config.name).start(self.config, self.place)
        return mirror

    def _save_state(self) -> None:
        atomic.write_text(self.state_file, json.dumps({"last_steps": self.last_steps, "kept": self.place.kept}))


def mirror_until(folder: Path, name: str, ended: Callable[[], bool]) -> None:
    """Send new rows until `ended`, which waits a moment, returns True; then once more for the rest."""
    with (folder / "trackers" / f".{name}.lock").open("w") as lock:
        # the mirror of a training that was just killed may still send its last rows
        fcntl.flock(lock, fcntl.LOCK_EX)
        mirror = MetricsMirror(folder, name)
        going = True
        while going:
            going = not ended()
            mirror.send_new_rows()
        mirror.close()


def _stdin_ended() -> bool:
    return bool(select.select([sys.stdin], [], [], _SECONDS_BETWEEN_READS)[0])


def main() -> None:
    os.nice(10)  # the training comes first
    folder, name = Path(sys.argv[1]), sys.argv[2]
    try:
        mirror_until(folder, name, _stdin_ended)
    except Exception as error:  # of any kind; the training's process reports the last line
        import traceback

        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".partition("\n")[0], file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
