"""The folder of one run: its description, status, metrics, summary and checkpoints. Nothing is written elsewhere."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from bigbatch.artifacts import atomic
from bigbatch.artifacts.metrics import MetricsContent, MetricsRow, parse_rows, read_rows
from bigbatch.artifacts.summary import Summary
from bigbatch.errors import Notice, Problem
from bigbatch.run import Run, fingerprint

Status = Literal["running", "stopped", "done", "diverged", "failed"]
_FILES = ("run.json", "status", "saved", "metrics.jsonl*", "summary.json", "checkpoint", "trackers")
_MARKERS = ("run.json", "status", "metrics.jsonl", "summary.json")  # a folder with any of them is a run's


class Folder:
    """runs/<name>-<hash>/: run.json, status, metrics.jsonl, summary.json, checkpoint/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoint"

    def exists(self) -> bool:
        """Whether this is a run's folder, in any state."""
        return any((self.path / marker).is_file() for marker in _MARKERS)

    def create(self, run: Run) -> None:
        """Create the folder with run.json. An existing run.json is kept."""
        from bigbatch.artifacts import provenance

        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "run.json").exists():
            about = {"run": json.loads(run.to_json()), "hash": run.hash, **provenance.collect()}
            self.write("run.json", json.dumps(about, indent=2))

    def run(self) -> Run:
        """Return the run that run.json describes; refuse one that was changed."""
        about = self._read_json("run.json")
        if not isinstance(about.get("run"), dict):
            raise Problem(f"{self.path / 'run.json'} does not describe a run: restore it from a copy")
        if fingerprint(about["run"]) != about.get("hash"):
            raise Problem(
                f"{self.path / 'run.json'} was changed after the run started: restore it, "
                f"or train it as a new run with 'bigbatch train {self.path / 'run.json'}'"
            )
        return Run.from_fields(about["run"])

    @property
    def run_hash(self) -> str:
        return str(self._read_json("run.json")["hash"])

    def record_resolved(self, **facts: Any) -> None:
        """Add to run.json what was determined at the start, such as the micro-batch that timing chose."""
        about = self._read_json("run.json")
        about["resolved"] = about.get("resolved", {}) | facts
        self.write("run.json", json.dumps(about, indent=2))

    def resolved(self) -> dict[str, Any]:
        """Return what `record_resolved` stored."""
        return dict(self._read_json("run.json").get("resolved", {})) if (self.path / "run.json").exists() else {}

    @property
    def status(self) -> Status | None:
        try:
            return (self.path / "status").read_text(errors="replace").strip()  # type: ignore[return-value]
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Problem(f"{self.path / 'status'} cannot be read ({error.strerror}): remove it") from error

    @status.setter
    def status(self, status: Status) -> None:
        self.write("status", status + "\n")

    def summary(self) -> Summary:
        """Return what summary.json holds."""
        return Summary.from_dict(self._read_json("summary.json"))

    def metrics(self) -> list[MetricsRow]:
        """Return all rows of metrics.jsonl."""
        return list(read_rows(self.path / "metrics.jsonl"))

    def rewind_metrics(self, step: int, saved: MetricsContent | None) -> tuple[list[MetricsRow], bool]:
        """Drop the rows after a step, which a resumed training writes again; what is dropped stays in metrics.jsonl.N.

        Return the other rows, and whether they are those that were `saved` with the checkpoint of that step.
        """
        path = self.path / "metrics.jsonl"
        content = path.read_bytes() if path.exists() else b""
        if saved is None:  # a checkpoint of version 0.1, or none
            rows = [row for row in self.metrics() if row["step"] <= step]
            kept, intact = "".join(json.dumps(row) + "\n" for row in rows).encode(), True
        elif intact := saved.is_begin_of(content):
            kept = content[: saved.size_bytes]
            rows = list(parse_rows(kept.splitlines(), path))
        else:
            rows = [row for row in parse_rows(content.splitlines(), path, skip_invalid=True) if row["step"] <= step]
            kept = "".join(json.dumps(row) + "\n" for row in rows).encode()
            warnings.warn(
                Notice(
                    f"{path} is not as it was saved with step {step} ({saved.rows:,} rows): {len(rows):,} rows up "
                    f"to that step are kept, and the result is measured again"
                ),
                stacklevel=2,
            )
        if kept != content:
            dropped = content.removeprefix(kept) if intact else content
            number = next(n for n in itertools.count(1) if not (self.path / f"metrics.jsonl.{n}").exists())
            if dropped:
                self.write(f"metrics.jsonl.{number}", dropped.decode(errors="replace"))
            self.write("metrics.jsonl", kept.decode())
        return rows, intact

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint, by the run's own record: its folder may be elsewhere, and out of reach."""
        try:
            return int((self.path / "saved").read_text())
        except FileNotFoundError:
            return int(self.status == "stopped")  # of version 0.1, which saved before it stopped
        except (OSError, ValueError) as error:
            raise Problem(f"{self.path / 'saved'} cannot be read ({error}): remove it") from error

    @saved_step.setter
    def saved_step(self, step: int) -> None:
        self.write("saved", f"{step}\n")

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder atomically."""
        atomic.write_text(self.path / name, text, advice=f"there, then 'bigbatch resume {self.path}'")

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it is not an object")
            return dict(value)
        except FileNotFoundError as error:
            raise Problem(
                f"{self.path} has no {name}, so it is not a complete run: give a folder like runs/<name>-<hash>"
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise Problem(f"{self.path / name} is not readable JSON ({error}): restore it from a copy") from error

    @contextmanager
    def move_aside(self) -> Iterator[None]:
        """Move the run's files away for a fresh start. A Problem before the first checkpoint brings them back."""
        aside = self.path / ".before"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        self._move_files(self.path, aside)
        try:
            yield
        except Problem:
            if not any(self.checkpoints.glob("step-*")):
                for path in _files(self.path):
                    shutil.rmtree(path, ignore_errors=True)
                    path.unlink(missing_ok=True)
                self._move_files(aside, self.path)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _move_files(self, source: Path, target: Path) -> None:
        for path in _files(source):
            path.rename(target / path.name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuse a second process on this folder. The system releases the lock with its process, even on kill -9."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise Problem(f"{self.path} is not writable ({error.strerror}): choose another --runs-dir") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                holder = lock.read().strip() or "?"
                raise Problem(
                    f"{self.path} is being trained by process {holder}: wait for it, or stop it first"
                ) from error
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            for left_over in self.path.glob(".*.tmp"):  # by a process that was killed
                left_over.unlink()
            yield

    def lock_holder_pid(self) -> int | None:
        """Return the id of the process that holds the lock, or None."""
        try:
            with (self.path / ".lock").open("r+") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    return int(lock.read())
        except (OSError, ValueError):
            pass
        return None


def _files(folder: Path) -> list[Path]:
    return [path for pattern in _FILES for path in folder.glob(pattern)]
