"""What a run leaves behind: files in its own folder, and nothing anywhere else. metrics.jsonl is the truth."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from bigbatch.artifacts.metrics import read_rows
from bigbatch.artifacts.summary import Summary
from bigbatch.errors import Problem
from bigbatch.run import Run, fingerprint

Status = Literal["running", "stopped", "done", "diverged", "failed"]
_FILES = ("run.json", "status", "metrics.jsonl", "summary.json", "checkpoint", "trackers")
_MARKS = ("run.json", "status", "metrics.jsonl", "summary.json")  # any of them makes a folder a run's


class Folder:
    """runs/<name>-<hash>/: run.json, status, metrics.jsonl, summary.json, checkpoint/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoint"

    # -- describing

    def exists(self) -> bool:
        """Whether this is a run's folder, in whatever state."""
        return any((self.path / mark).is_file() for mark in _MARKS)

    def create(self, run: Run) -> None:
        """Make the folder and say what will be run, once. Later starts find it as it is."""
        from bigbatch.artifacts import provenance

        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "run.json").exists():
            about = {"run": json.loads(run.to_json()), "hash": run.hash, **provenance.collect()}
            self.write("run.json", json.dumps(about, indent=2))

    def run(self) -> Run:
        about = self._read_json("run.json")
        if not isinstance(about.get("run"), dict):
            raise Problem(f"{self.path / 'run.json'} describes no run: restore it from a copy")
        if fingerprint(about["run"]) != about.get("hash"):
            raise Problem(
                f"{self.path / 'run.json'} was changed after the run had begun: put it back, "
                f"or train it as a run of its own with 'bigbatch train {self.path / 'run.json'}'"
            )
        return Run(**about["run"])

    @property
    def run_hash(self) -> str:
        return self._read_json("run.json")["hash"]

    def record_resolved(self, **facts: Any) -> None:
        """Add to run.json what was found out at the start, like the micro-batch that timing chose."""
        about = self._read_json("run.json")
        about["resolved"] = about.get("resolved", {}) | facts
        self.write("run.json", json.dumps(about, indent=2))

    def resolved(self) -> dict[str, Any]:
        return self._read_json("run.json").get("resolved", {}) if (self.path / "run.json").exists() else {}

    # -- status and summary

    @property
    def status(self) -> Status | None:
        try:
            return (self.path / "status").read_text(errors="replace").strip()  # type: ignore[return-value]
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Problem(f"{self.path / 'status'} cannot be read ({error.strerror}): remove it") from error

    @status.setter
    def status(self, status: Status) -> None:
        self.write("status", status + "\n")

    def summary(self) -> Summary:
        return Summary.from_dict(self._read_json("summary.json"))

    # -- metrics

    def metrics(self) -> list[dict[str, Any]]:
        return list(read_rows(self.path / "metrics.jsonl"))

    def rewind(self, step: int) -> list[dict[str, Any]]:
        """Drop the rows after a step (they will be made again) and give back the rest."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        self.write("metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        return rows

    # -- files

    def write(self, name: str, text: str) -> None:
        """Under a temporary name, then renamed: a reader sees the old text or the new one."""
        temporary = self.path / f".{name}.tmp"
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(self.path / name)
        except OSError as error:
            raise Problem(
                f"{self.path / name} could not be written ({error.strerror}): free space there, "
                f"then 'bigbatch resume {self.path}'"
            ) from error

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it is no object")
            return value
        except FileNotFoundError as error:
            raise Problem(
                f"{self.path} has no {name}, so it is no whole run: give a folder like runs/<name>-<hash>"
            ) from error
        except (OSError, ValueError) as error:
            raise Problem(f"{self.path / name} is not readable JSON ({error}): restore it from a copy") from error

    @contextmanager
    def move_aside(self) -> Iterator[None]:
        """Start over, but give back what was here if that comes to a Problem before anything new was saved."""
        aside = self.path / ".before"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        self._move(self.path, aside)
        try:
            yield
        except Problem:
            if not any(self.checkpoints.glob("step-*")):
                for name in _FILES:
                    _remove(self.path / name)
                self._move(aside, self.path)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _move(self, source: Path, target: Path) -> None:
        for name in _FILES:
            if (source / name).exists():
                (source / name).rename(target / name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuse a second process on this folder. The system drops the lock with its process, even on kill -9."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise Problem(f"{self.path} cannot be written to ({error.strerror}): choose another --runs-dir") from error
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
            yield

    def lock_holder_pid(self) -> int | None:
        """The process that holds the lock, if one does."""
        try:
            with (self.path / ".lock").open("r+") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    return int(lock.read())
        except (OSError, ValueError):
            pass
        return None


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
