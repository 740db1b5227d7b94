"""The demo from start to end: one sweep on all cores, advice for its baseline, a filter by it, and a page."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from bigbatch.advice import Advice, advise_run
from bigbatch.demo.filtering import DroppedDigits, filter_digits
from bigbatch.demo.story import BASELINE, Comparison, build_variants, compare_variants
from bigbatch.errors import Problem, Stopped
from bigbatch.output.progress import show_progress
from bigbatch.recipes import legw_digits
from bigbatch.run import Run
from bigbatch.sweeps import RunResult, Sweep, WorkerOptions


@dataclass(frozen=True)
class DemoOptions:
    runs_dir: Path  # the sweeps are folders in it
    quiet: bool = True
    seeds: int = 3
    epochs: float | None = None  # shortens all runs, for tests
    advice_seconds: float = 10.0

    def shorten(self, run: Run) -> Run:
        return run.with_settings([f"epochs={self.epochs}"] if self.epochs else [])


@dataclass(frozen=True)
class DemoReport:
    """Everything that the demo found out."""

    comparison: Comparison
    advice: Advice
    dropped: DroppedDigits
    sweep_folder: Path
    seconds: float


def run_demo(options: DemoOptions) -> DemoReport:
    """Train, measure and filter. What is trained already is not trained again; Ctrl-C raises `Stopped`."""
    start = time.monotonic()
    base = options.shorten(legw_digits.run())
    folder = options.runs_dir / "demo"
    sweep = Sweep.create(base, folder, title="demo", variants=build_variants(), seeds=options.seeds)
    comparison = compare_variants(sweep.points, run_sweep(sweep, options.quiet))
    baseline = comparison[BASELINE]
    try:
        with show_progress(not options.quiet), _one_thread():
            advice = advise_run(baseline.run, seconds=options.advice_seconds, quiet=options.quiet)
            dropped = filter_digits(baseline.runs[0].folder)
    except KeyboardInterrupt:
        raise _stopped() from None
    return DemoReport(comparison, advice, dropped, folder, time.monotonic() - start)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute as the sweep's runs do: more threads slow down a model as small as this one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_sweep(sweep: Sweep, quiet: bool) -> list[RunResult]:
    """Run what is missing, one thread per run on all cores. A run that fails raises a Problem."""
    try:
        sweep.run(WorkerOptions(jobs=len(os.sched_getaffinity(0)), quiet=quiet))
    except Stopped:
        raise _stopped() from None
    results = sweep.run_results()
    for result in results:
        if result.problem:
            raise Problem(f"{result.label}, seed {result.seed}: {result.problem}")
    return results


def _stopped() -> Stopped:
    return Stopped("stopped; finished runs and checkpoints are kept, and the same command resumes the demo")
