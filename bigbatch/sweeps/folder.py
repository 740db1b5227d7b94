"""A sweep and its folder: sweep.json (its configuration), runs/, work/ (claims, logs), results.json and table.csv.

The last two are made from the runs and can be made again at any time.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Unpack

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.targets import Target
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.sweeps.analysis import SweepResults, analyze, analyze_search
from bigbatch.sweeps.claims import Claims
from bigbatch.sweeps.config import SweepChanges, SweepConfig, SweepPoint
from bigbatch.sweeps.queue import PointQueue
from bigbatch.sweeps.results import FINISHED, RunResult, format_table, read_result, read_trials, read_unfinished
from bigbatch.sweeps.search import TrialQueue, evaluate_on_held_out, extreme_points
from bigbatch.sweeps.worker import Worker, WorkerOptions
from bigbatch.trust import trust_typed

CONFIG_FILE = "sweep.json"


def sweep(
    run: Run, folder: Path | str, options: WorkerOptions | None = None, **changes: Unpack[SweepChanges]
) -> SweepResults:
    """Train a run in many settings and analyze the results; what is finished in the folder is not trained again.

    sweep(run, "sweeps/mine", WorkerOptions(jobs=2), grids={"global_batch": (16, 512)}, seeds=3)
    """
    options = options or WorkerOptions()
    return Sweep.create(run, folder, options.data_dir, **changes).run(options)


class Sweep:
    """The configuration of a sweep and the folder of its runs."""

    def __init__(self, folder: Path | str, config: SweepConfig) -> None:
        self.folder = Path(folder)
        self.config = config

    @classmethod
    def open(cls, folder: Path | str) -> Sweep:
        return cls(folder, SweepConfig.read(Path(folder) / CONFIG_FILE))

    @staticmethod
    def is_sweep(folder: Path | str) -> bool:
        return (Path(folder) / CONFIG_FILE).is_file()

    @classmethod
    def create(
        cls, run: Run, folder: Path | str, data_dir: Path | None = None, **changes: Unpack[SweepChanges]
    ) -> Sweep:
        """Create a sweep's folder, or extend the sweep that is there, for example from one seed to three.

        Wrong fields and values, batches larger than the data and warm-ups longer than the training are refused.
        """
        config = SweepConfig.build(run, **changes)
        trust_typed([config.grids, config.variants, config.search])
        created = cls(folder, config)
        created.check(data_dir)
        created.save()
        return created

    def check(self, data_dir: Path | None = None) -> None:
        """Refuse what could not be trained, before anything is."""
        from bigbatch.sweeps.plan import check_points  # imports the training

        search = self.config.search
        check_points(extreme_points(self.points, search) if search else self.points, data_dir)

    def save(self) -> None:
        """Write sweep.json. A sweep may grow, but its runs may not be dropped."""
        if self.is_sweep(self.folder):
            self._refuse_to_shrink(Sweep.open(self.folder))
        elif self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / "runs").is_dir():
            raise Problem(f"{self.folder} holds something other than a sweep: choose another folder")
        atomic.write_text(self.folder / CONFIG_FILE, self.config.model_dump_json(indent=2) + "\n")

    def _refuse_to_shrink(self, before: Sweep) -> None:
        hashes = {point.hash for point in self.points}
        dropped = [point for point in before.points if point.hash not in hashes]
        old, new = before.config.search, self.config.search
        if dropped or (old is None) != (new is None):
            example = dropped[0] if dropped else before.points[0]
            raise Problem(
                f"{self.folder} is a sweep with {len(dropped) or 'other'} runs that are missing now "
                f"({example.label}, seed {example.seed}): include them, or choose another folder"
            )
        if old and new and old.ranges != new.ranges:
            raise Problem(f"{self.folder} is a search over other ranges: choose another folder")

    @cached_property
    def points(self) -> list[SweepPoint]:
        """Every run of the sweep; of a search, the settings that each have their own search."""
        return self.config.points()

    # -- reading

    def run_results(self) -> list[RunResult]:
        """Read the result of each run from its folder."""
        if self.config.search:
            return read_trials(self.points, self.config.search, self.folder)
        claims = Claims(self.folder / "work")
        return [read_unfinished(point, self.folder, claims.is_claimed(point.hash)) for point in self.points]

    def analyze(self, baseline_batch: int | None = None, results: list[RunResult] | None = None) -> SweepResults:
        results = self.run_results() if results is None else results
        if self.config.search:
            return analyze_search(results, self.config.search, self.points)
        return analyze(results, baseline_batch, self.config.targets)

    def write_results(self) -> SweepResults:
        """Write results.json and table.csv from the runs."""
        self._record_crossings()
        results = self.run_results()
        found = self.analyze(results=results)
        atomic.write_text(self.folder / "results.json", found.model_dump_json(indent=2) + "\n")
        atomic.write_text(self.folder / "table.csv", format_table(results, self.folder, self.config.targets))
        return found

    def _record_crossings(self) -> None:
        """Record where finished runs first reached the sweep's targets."""
        from bigbatch.training.loop import record_crossings  # imports the training

        targets = [Target.parse(target) for target in self.config.targets]
        for folder in (Folder(self.folder / "runs" / point.folder_name) for point in self.points if targets):
            # without its metrics a run is as its summary says
            if folder.status in FINISHED and (folder.path / "metrics.jsonl").exists():
                with suppress(Problem):  # a damaged run is reported as such
                    known = folder.summary().crossings or {}
                    if missing := [target for target in targets if str(target) not in known]:
                        record_crossings(folder, missing)

    # -- running

    def run(self, options: WorkerOptions) -> SweepResults:
        """Run what is missing, beside any other workers on this folder, and analyze the results.

        On Ctrl-C or SIGTERM, all runs write a checkpoint and stop (`errors.Stopped`).
        """
        search = self.config.search
        queue = (
            TrialQueue(self.points, search, self.folder, options.storage)
            if search
            else PointQueue(self.points, self.folder)
        )
        Worker(queue, self.folder, options, self.write_results).run_all()
        return self.write_results()

    def points_left(self, storage: str | None = None) -> tuple[list[SweepPoint], int]:
        """Return a point for every run that is still to be trained, and how many runs there are in all."""
        search = self.config.search
        if search is None:
            results = [read_result(point, self.folder / "runs") for point in self.points]
            left = [p for p, result in zip(self.points, results, strict=True) if result.status not in FINISHED]
            return left, len(self.points)
        counts = [search.trials] * len(self.points)
        if self.is_sweep(self.folder):
            counts = TrialQueue(self.points, search, self.folder, storage).count_left()
        held_out = [evaluate_on_held_out(point, search) for point in self.points]
        left = [point for point, count in zip(held_out, counts, strict=True) for _ in range(count)]
        return left, len(self.points) * search.trials
