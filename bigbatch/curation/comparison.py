"""Compare results of filters: sizes, overlaps, classes, and the accuracy of a network trained on each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bigbatch import filters
from bigbatch.curation.rounds import CurationRequest
from bigbatch.errors import Problem
from bigbatch.filters.pipeline.results import SampleCounts
from bigbatch.output.progress import log_progress, show_progress
from bigbatch.recipes import load_run
from bigbatch.run import Run


@dataclass(frozen=True)
class ComparisonRequest(CurationRequest):
    """Which results to compare; with a recipe, by its accuracy on each."""

    results: Sequence[Path]  # two kept.npz or more
    recipe: str | None = None  # its dataset is replaced by that of the results
    settings: Sequence[str] = ()  # of the recipe, like global_batch=8192
    seeds: int = 3

    def build_run(self) -> Run | None:
        """Return the run to train on each result."""
        if self.recipe is None:
            return None
        dataset = filters.load(self.results[0]).require_manifest().dataset.config
        fields = load_run(self.recipe).model_dump(mode="json") | {"dataset": dataset}
        return Run.from_fields(fields).with_settings(self.settings)


@dataclass(frozen=True)
class ComparisonRow:
    """One result: its size, its overlap with each of the others, and accuracies of networks trained on it."""

    name: str
    counts: SampleCounts
    jaccard_dropped: dict[str, float]  # dropped by both / dropped by either; 1 where neither drops anything
    jaccard_kept: dict[str, float]
    accuracies: list[float] = field(default_factory=list)  # one per seed; a diverged run has none
    diverged: int = 0
    steps: int = 0

    @property
    def accuracy(self) -> str:
        """`93.10 ± 0.21 (n=3)`: mean and standard deviation over seeds, in percent."""
        values, text = self.accuracies, "none"
        if values:
            deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
            text = f"{100 * statistics.mean(values):.2f}{deviation} (n={len(values)})"
        return text + (f", {self.diverged} diverged" if self.diverged else "")


def compare_results(request: ComparisonRequest) -> list[ComparisonRow]:
    """Return sizes, overlaps and classes of several results; with a recipe, its accuracy on each for several seeds."""
    paths = request.results
    if len(paths) < 2:
        raise Problem(f"a comparison needs two results or more, got {len(paths)}: give several kept.npz")
    repeated = [path for number, path in enumerate(paths) if path in paths[:number]]
    if repeated:
        raise Problem(f"{repeated[0]} is given twice: name each result once")
    if request.seeds < 1:
        raise Problem(f"--seeds must be at least 1, got {request.seeds}: use 1 or more")
    rows = measure_overlaps(paths)
    run = request.build_run()
    if run is None:
        return rows
    with show_progress(not request.quiet):
        return [train_on_result(row, path, run, request) for row, path in zip(rows, paths, strict=True)]


def measure_overlaps(paths: Sequence[Path]) -> list[ComparisonRow]:
    """Return sizes and overlaps of results, which must be of one dataset."""
    stems = [path.stem for path in paths]
    names = [path.stem if stems.count(path.stem) == 1 else str(path) for path in paths]
    results = dict(zip(names, map(filters.load, paths), strict=True))
    first = results[names[0]]
    for result in results.values():
        result.require_manifest()
        if result.dataset_hash != first.dataset_hash:
            raise Problem(
                f"{first.path} and {result.path} are of different datasets (hash {first.dataset_hash[:10]} and "
                f"{result.dataset_hash[:10]}): compare filters of one dataset"
            )
    return [
        ComparisonRow(
            name,
            result.require_manifest().counts,
            {other: filters.jaccard(~result.mask, ~results[other].mask) for other in results},
            {other: filters.jaccard(result.mask, results[other].mask) for other in results},
        )
        for name, result in results.items()
    ]


def train_on_result(row: ComparisonRow, path: Path, run: Run, request: ComparisonRequest) -> ComparisonRow:
    """Return the row with the accuracies of the run on the kept samples, for seeds 0, 1, ..."""
    accuracies, diverged, steps = [], 0, 0
    for seed in range(request.seeds):
        fields = run.model_dump(mode="json") | {"filter": str(path), "seed": seed}
        summary = request.train(Run(**fields))
        steps = max(steps, summary["steps"])  # a diverged run takes fewer
        if summary["diverged_at_step"] is None:
            accuracies.append(summary["test_accuracy"])
            log_progress(f"{row.name}, seed {seed}: {100 * summary['test_accuracy']:.2f} %")
        else:
            diverged += 1
            log_progress(f"{row.name}, seed {seed}: diverged at step {summary['diverged_at_step']}")
    return replace(row, accuracies=accuracies, diverged=diverged, steps=steps)
