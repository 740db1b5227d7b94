"""Workers on a cluster: submitit starts `--jobs` of them with SLURM, and claims divide the points among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bigbatch import settings
from bigbatch.errors import Problem, Stopped
from bigbatch.libraries import import_library
from bigbatch.sweeps.folder import Sweep
from bigbatch.sweeps.worker import WorkerOptions
from bigbatch.trust import trust_modules, trusted_names

Launcher = Literal["slurm", "local"]


@dataclass(frozen=True)
class ClusterJob:
    """A worker as a job. Out of time or preempted, it stops its run with a checkpoint and is queued again."""

    folder: Path
    options: WorkerOptions
    trusted: Sequence[str] = ()  # modules; a cluster may not hand our environment on

    def __call__(self) -> str:
        trust_modules(self.trusted)
        try:
            Sweep.open(self.folder).run(self.options)
        except Stopped as stopped:
            return str(stopped)
        return "done"

    def checkpoint(self) -> Any:
        """Called by submitit before a job's time is over; as this process ends, its runs stop with a checkpoint."""
        return import_library("submitit.helpers", "--launcher").DelayedSubmission(self)


def submit(sweep: Sweep, launcher: Launcher, options: WorkerOptions, parameters: Sequence[str] = ()) -> list[Any]:
    """Submit `options.jobs` workers with one run at a time and return submitit's jobs.

    `local` is submitit's substitute for a cluster on this machine. `parameters` are NAME=VALUE.
    """
    submitit = import_library("submitit", f"--launcher {launcher}")
    folder = sweep.folder.resolve()
    try:
        executor = submitit.AutoExecutor(folder / "work" / "jobs", cluster=launcher)
    except RuntimeError as error:
        raise Problem(f"--launcher {launcher} finds no cluster here ({error}): use --launcher local or none") from error
    parsed = dict(settings.parse(text, example="slurm_partition=gpu") for text in parameters)
    executor.update_parameters(**({"name": f"bigbatch-{sweep.config.title}", "timeout_min": 24 * 60} | parsed))
    data_dir = options.data_dir and options.data_dir.resolve()
    job = ClusterJob(folder, replace(options, jobs=1, data_dir=data_dir, quiet=False), trusted_names())
    with executor.batch():
        return [executor.submit(job) for _ in range(options.jobs)]
