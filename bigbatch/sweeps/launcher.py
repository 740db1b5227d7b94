"""Workers on a cluster: submitit starts `--jobs` of them with SLURM, and claims divide the points among them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bigbatch.errors import Problem, Stopped
from bigbatch.libraries import import_library
from bigbatch.settings import parse_value
from bigbatch.sweeps.sweep import Sweep


class RemoteWorker:
    """What a job runs. Out of time or preempted, it stops its run with a checkpoint and is queued again."""

    def __init__(self, folder: Path, data_dir: Path | None, checkpoint_minutes: float, storage: str | None) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self.checkpoint_minutes = checkpoint_minutes
        self.storage = storage

    def __call__(self) -> str:
        try:
            Sweep.open(self.folder).work(
                data_dir=self.data_dir,
                checkpoint_minutes=self.checkpoint_minutes,
                storage=self.storage,
                quiet=False,
            )
        except Stopped as stopped:
            return str(stopped)
        return "done"

    def checkpoint(self) -> Any:
        """Asked for by submitit before a job's time is over; as this process ends, its runs stop with a checkpoint."""
        return import_library("submitit.helpers", "--launcher").DelayedSubmission(self)


def submit(
    sweep: Sweep,
    launcher: Literal["slurm", "local"],
    jobs: int,
    parameters: Sequence[str],
    data_dir: Path | None = None,
    checkpoint_minutes: float = 10.0,
    storage: str | None = None,
) -> list[Any]:
    """Submit workers and come back; gives submitit's jobs. `local` is submitit's stand-in for a cluster, here."""
    submitit = import_library("submitit", f"--launcher {launcher}")
    if jobs < 1:
        raise Problem(f"--jobs {jobs} makes no sense: use 1 or more")
    folder = sweep.folder.resolve()
    try:
        executor = submitit.AutoExecutor(folder / "work" / "jobs", cluster=launcher)
    except RuntimeError as error:
        raise Problem(f"--launcher {launcher} finds no cluster here ({error}): use --launcher local or none") from error
    executor.update_parameters(**_parameters(parameters, sweep.asked.title))
    worker = RemoteWorker(folder, data_dir and data_dir.resolve(), checkpoint_minutes, storage)
    with executor.batch():
        submitted = [executor.submit(worker) for _ in range(jobs)]
    print(f"{len(submitted)} workers submitted: {', '.join(job.job_id for job in submitted)}")
    print(f"'bigbatch sweep {sweep.folder} --table' shows how far they are")
    return submitted


def _parameters(texts: Sequence[str], title: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {"name": f"bigbatch-{title}", "timeout_min": 24 * 60}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Problem(f"'{text}' is no parameter of a job: write NAME=VALUE, like slurm_partition=gpu")
        parameters[name] = parse_value(value)
    return parameters
