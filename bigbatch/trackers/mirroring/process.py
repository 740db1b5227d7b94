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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import parse_row, scalars
from bigbatch.trackers import Mirror, TrackedRun

_SECONDS_BETWEEN_READS = 1.0


class MetricsMirror:
    """One run and its mirror, which is started with the first row."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.config = parts.configure("trackers", name)
        self.state_file = folder / "trackers" / f"{name}.json"
        self.metrics: IO[bytes] | None = None
        self.last_steps: dict[str, int] = {}
        self.mirror: Mirror | None = None

    def send_new_rows(self) -> None:
        """Send new rows to the tool, then store how far it got."""
        for line in self._read_appended_lines():
            row = parse_row(line)
            self.mirror = self.mirror or self._start_mirror()
            step: int = row["step"]
            new = {
                name: value
                for name, value in scalars(row).items()
                if name != "step" and step > self.last_steps.get(name, -1)
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

    def _read_appended_lines(self) -> list[bytes]:
        """Return the complete lines since the last call. A file that replaced the last one is read from its start."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        if self.metrics is None or os.fstat(self.metrics.fileno()).st_ino != path.stat().st_ino:
            self.metrics = path.open("rb")
        lines = self.metrics.readlines()
        if lines and not lines[-1].endswith(b"\n"):
            self.metrics.seek(-len(lines.pop()), os.SEEK_CUR)
        return lines

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
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".partition("\n")[0], file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
