"""Results of filters side by side: sizes, overlaps, classes, and what a network learns from each."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch import Tensor

from bigbatch.errors import Problem
from bigbatch.filters import _manifest
from bigbatch.filters._manifest import Saved
from bigbatch.filters._progress import say
from bigbatch.run import Run


@dataclass(frozen=True)
class Row:
    """One result: its size, its overlap with each of the others, and accuracies of networks trained on it."""

    name: str
    counts: dict[str, Any]
    jaccard_dropped: dict[str, float]  # dropped by both / dropped by either; 1 where neither drops anything
    jaccard_kept: dict[str, float]
    accuracies: list[float] = field(default_factory=list)  # one a seed; a diverged run counts as none
    diverged: int = 0
    steps: int = 0


def rows(paths: Sequence[Path]) -> list[Row]:
    """Sizes and overlaps. All results have to be of one dataset."""
    results = {_name(path, paths): _manifest.load(path) for path in paths}
    _refuse_unlike(list(results.values()))
    return [
        Row(
            name,
            result.manifest["counts"],
            {other: jaccard(~result.mask, ~results[other].mask) for other in results},
            {other: jaccard(result.mask, results[other].mask) for other in results},
        )
        for name, result in results.items()
    ]


def jaccard(a: Tensor, b: Tensor) -> float:
    """|A ∩ B| / |A ∪ B|; two empty sets are the same set."""
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else 1.0


def trained(row: Row, path: Path, run: Run, seeds: int, runs_dir: Path, data_dir: Path | None) -> Row:
    """The row with accuracies of the run on what the filter kept, for seeds 0, 1, ..."""
    from bigbatch.training.loop import train

    accuracies, diverged, steps = [], 0, 0
    for seed in range(seeds):
        fields = run.model_dump(mode="json") | {"filter": str(path), "seed": seed}
        summary = train(Run(**fields), runs_dir=runs_dir, data_dir=data_dir)
        steps = max(steps, summary["steps"])  # a diverged run takes fewer
        if summary["diverged_at_step"] is None:
            accuracies.append(summary["test_accuracy"])
            say(f"{row.name}, seed {seed}: {100 * summary['test_accuracy']:.2f} %")
        else:
            diverged += 1
            say(f"{row.name}, seed {seed}: diverged at step {summary['diverged_at_step']}")
    return replace(row, accuracies=accuracies, diverged=diverged, steps=steps)


def accuracy(values: list[float], diverged: int) -> str:
    """`93.10 ± 0.21 (n=3)`: the mean and the standard deviation over seeds."""
    doubt = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    mean = f"{100 * statistics.mean(values):.2f}{doubt} (n={len(values)})" if values else "none"
    return mean + (f", {diverged} diverged" if diverged else "")


def show(table_rows: Sequence[Row], run: Run | None) -> None:
    console = Console()
    about = (
        f"{run.model.name}, global batch {_batch(run)}, {run.epochs or run.steps} {'epochs' if run.epochs else 'steps'}"
        if run
        else ""
    )
    table = Table("filter", title=f"trained: {about}" if run else None)
    for column in ("kept", "dropped", *(("test accuracy %", "steps") if run else ())):
        table.add_column(column, justify="right")
    for row in table_rows:
        learned = (accuracy(row.accuracies, row.diverged), str(row.steps)) if run else ()
        table.add_row(row.name, f"{row.counts['kept']:,}", f"{row.counts['dropped']:,}", *learned)
    console.print(table)
    overlaps = Table("dropped by both / by either", *(row.name for row in table_rows))
    for row in table_rows:
        overlaps.add_row(row.name, *(f"{row.jaccard_dropped[other.name]:.3f}" for other in table_rows))
    console.print(overlaps)
    by_class = Table("dropped of class", *(row.name for row in table_rows))
    for name in table_rows[0].counts["by_class"]:
        by_class.add_row(name, *(f"{row.counts['by_class'][name]['dropped']:,}" for row in table_rows))
    console.print(by_class)


def _batch(run: Run) -> Any:
    return run.model_dump(mode="json")["global_batch"]


def _name(path: Path, paths: Sequence[Path]) -> str:
    """The file's name, with its folder where two files have one name."""
    return path.stem if sum(other.stem == path.stem for other in paths) == 1 else str(path)


def _refuse_unlike(results: list[Saved]) -> None:
    first = results[0]
    for result in results:
        if not result.manifest:
            raise Problem(f"filter file {result.path} has no manifest: make it again with 'bigbatch filter'")
        if result.dataset_hash != first.dataset_hash:
            raise Problem(
                f"{first.path} and {result.path} are of unlike datasets (hash {first.dataset_hash[:10]} and "
                f"{result.dataset_hash[:10]}): compare filters of one dataset"
            )
