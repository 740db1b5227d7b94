"""Compare results of filters: sizes, overlaps, classes, and the accuracy of a network trained on each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bigbatch import batch_sizes, filters
from bigbatch.artifacts import atomic
from bigbatch.curation.rounds import CurationRequest
from bigbatch.datasets import sha256
from bigbatch.errors import Problem
from bigbatch.filters.pipeline.results import SampleCounts, apply_overrides
from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_csv
from bigbatch.output.page import Page
from bigbatch.output.progress import log_progress, show_progress
from bigbatch.recipes import load_run
from bigbatch.run import Run
from bigbatch.sweeps.intervals import confidence_interval

Budget = Literal["epochs", "steps"]


@dataclass(frozen=True)
class ComparisonRequest(CurationRequest):
    """Which results to compare; with a recipe, by its accuracy on each."""

    results: Sequence[Path]  # two kept.npz or more; differences are to the first
    recipe: str | None = None  # its dataset is replaced by that of the results
    settings: Sequence[str] = ()  # of the recipe, like optimizer=lars
    seeds: int = 3
    global_batches: Sequence[int] = ()  # default: the recipe's
    budgets: Sequence[Budget] = ("epochs",)  # epochs of what is kept, or as many steps as all samples would take
    random_draws: int = 0  # controls of each result: as many samples of each class, dropped at random
    equal_sizes: bool = False  # of each class, drop only as many as the result that drops least, largest scores first
    out: Path | None = None  # a folder for compare.csv and a page

    def __post_init__(self) -> None:
        if len(self.results) < 2:
            raise Problem(f"a comparison needs two results or more, got {len(self.results)}: give several kept.npz")
        repeated = [path for number, path in enumerate(self.results) if path in self.results[:number]]
        if repeated:
            raise Problem(f"{repeated[0]} is given twice: name each result once")
        if self.seeds < 1:
            raise Problem(f"--seeds must be at least 1, got {self.seeds}: use 1 or more")

    def build_run(self) -> Run | None:
        """Return the run to train on each result."""
        if self.recipe is None:
            return None
        dataset = filters.load(self.results[0]).require_manifest().dataset.config
        fields = load_run(self.recipe).model_dump(mode="json") | {"dataset": dataset}
        return Run.from_fields(fields).with_settings(self.settings)


@dataclass(frozen=True)
class Training:
    """One training on a result, or on one of its random controls (draw 1, 2, ...)."""

    draw: int
    global_batch: str
    budget: Budget
    seed: int
    steps: int
    accuracy: float | None  # None: it diverged


@dataclass(frozen=True)
class ComparisonRow:
    """One result: its size, its overlap with each of the others, and networks trained on it and on its controls."""

    name: str
    counts: SampleCounts
    jaccard_dropped: dict[str, float]  # dropped by both / dropped by either; 1 where neither drops anything
    jaccard_kept: dict[str, float]
    trainings: list[Training] = field(default_factory=list)

    def accuracies(self, setting: tuple[str, Budget], *, controls: bool = False) -> dict[int, float]:
        """Return the accuracy by seed, of controls the mean over draws; diverged trainings are left out."""
        found: dict[int, list[float]] = {}
        for one in self.trainings:
            if (one.global_batch, one.budget) == setting and (one.draw > 0) == controls and one.accuracy is not None:
                found.setdefault(one.seed, []).append(one.accuracy)
        return {seed: sum(values) / len(values) for seed, values in found.items()}


def compare_results(request: ComparisonRequest) -> list[ComparisonRow]:
    """Return sizes, overlaps and classes of several results; with a recipe, its accuracy on each for several seeds."""
    run = request.build_run()
    if request.out is not None:
        atomic.check_writable(request.out)
    paths = _equalise_sizes(request) if request.equal_sizes else list(request.results)
    rows = measure_overlaps(paths, [path.stem for path in request.results])
    if run is not None:
        with show_progress(not request.quiet):
            rows = [
                replace(row, trainings=_train_on_result(row.name, path, run, request))
                for row, path in zip(rows, paths, strict=True)
            ]
    if request.out is not None:
        _write_files(request.out, rows)
    return rows


def _equalise_sizes(request: ComparisonRequest) -> list[Path]:
    """Write results that drop equally many of each class; those that drop nothing at all stay as they are."""
    results = [filters.load(path) for path in request.results]
    labels = results[0].labels
    dropping = [result for result in results if not bool(result.mask.all())]
    paths = []
    for result in results:
        mask = result.mask.clone()
        for index in labels.unique().tolist():
            count = min((int((~other.mask[labels == index]).sum()) for other in dropping), default=0)
            dropped = ((labels == index) & ~result.mask).nonzero().squeeze(1)
            mask[dropped[result.score[dropped].argsort(descending=True, stable=True)[count:]]] = True
        path = request.runs_dir / "compared" / f"{result.path.stem}-{sha256(mask)[:12]}.npz"
        filters.save(path, apply_overrides(result, mask, []))
        paths.append(path)
    return paths


def measure_overlaps(paths: Sequence[Path], stems: Sequence[str]) -> list[ComparisonRow]:
    """Return sizes and overlaps of results, which must be of one dataset, under their names."""
    names = [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]
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


def _train_on_result(name: str, path: Path, run: Run, request: ComparisonRequest) -> list[Training]:
    """Train on the kept samples and on random controls, for each batch, budget and seed 0, 1, ..."""
    samples = len(filters.load(path).mask)
    trainings = []
    batches: Sequence[int | None] = request.global_batches or [None]
    for draw in range(request.random_draws + 1):
        chosen: Any = {"name": "random", "like": str(path), "seed": draw} if draw else str(path)
        for batch, budget, seed in itertools.product(batches, request.budgets, range(request.seeds)):
            at_batch = run if batch is None else run.with_settings([f"global_batch={batch}"])
            fields = at_batch.model_dump(mode="json") | {"filter": chosen, "seed": seed}
            if budget == "steps" and at_batch.epochs is not None:
                per_epoch = -(-samples // batch_sizes.largest(at_batch.global_batch))
                fields |= {"epochs": None, "steps": round(at_batch.epochs * per_epoch)}
            summary = request.train(Run(**fields))
            accuracy = summary["test_accuracy"] if summary["diverged_at_step"] is None else None
            size = str(batch or fields["global_batch"])
            trainings.append(Training(draw, size, budget, seed, summary["steps"], accuracy))
            text = "diverged" if accuracy is None else f"{100 * accuracy:.2f} %"
            control = f", random draw {draw}" if draw else ""
            log_progress(f"{name}{control}, batch {size}, equal {budget}, seed {seed}: {text}")
    return trainings


def summarise_trainings(rows: Sequence[ComparisonRow]) -> tuple[list[str], list[list[str]]]:
    """Return a table: accuracies, and differences of the same seeds to the first result and to random controls."""
    first = rows[0]
    columns = [
        "filter",
        "batch",
        "equal",
        "test accuracy %",
        f"minus {first.name}",
        "minus random",
        "steps",
        "diverged",
    ]
    lines = []
    settings = dict.fromkeys((one.global_batch, one.budget) for row in rows for one in row.trainings)
    for setting in settings:
        for row in rows:
            here = [one for one in row.trainings if (one.global_batch, one.budget) == setting and one.draw == 0]
            own, base = row.accuracies(setting), first.accuracies(setting)
            lines.append(
                [
                    row.name,
                    *setting,
                    _format_interval(list(own.values())),
                    _format_difference(own, base) if row is not first else "",
                    _format_difference(own, row.accuracies(setting, controls=True)),
                    str(max(one.steps for one in here)),
                    str(sum(one.accuracy is None for one in here)),
                ]
            )
    return columns, lines


def _format_difference(own: dict[int, float], other: dict[int, float]) -> str:
    return _format_interval([own[seed] - other[seed] for seed in own if seed in other], sign="+")


def _format_interval(values: Sequence[float], sign: str = "") -> str:
    """`93.10 ± 0.21 (n=3)`: the mean and its 95 % interval, in percent or points."""
    if not values:
        return "-"
    mean, low, high = confidence_interval(values)
    half = f" ± {50 * (high - low):.2f}" if low is not None and high is not None else ""
    return f"{100 * mean:{sign}.2f}{half} (n={len(values)})"


def _write_files(out: Path, rows: Sequence[ComparisonRow]) -> None:
    trainings = [{"filter": row.name} | vars(one) for row in rows for one in row.trainings]
    sizes: list[dict[str, object]] = [
        {"filter": row.name, "class": name, "kept": counts.kept, "dropped": counts.dropped}
        for row in rows
        for name, counts in row.counts.by_class.items()
    ]
    atomic.write_text(out / "sizes.csv", format_csv(sizes))
    page = Page("Filters compared", f"{', '.join(row.name for row in rows)}; intervals of 95 % over seeds")
    page.table(["filter", "kept", "dropped"], [[row.name, row.counts.kept, row.counts.dropped] for row in rows])
    if trainings:
        atomic.write_text(out / "compare.csv", format_csv(trainings))
        page.heading("Accuracy")
        page.table(*summarise_trainings(rows))
        page.text("Differences are of the same seeds, in points. Random controls drop as many samples of each class.")
        page.charts([(chart, "") for chart in _draw_accuracies(rows)])
    page.write(out / "index.html")


def _draw_accuracies(rows: Sequence[ComparisonRow]) -> list[Chart]:
    """One chart per budget, if there are several batches."""
    charts = []
    for budget in dict.fromkeys(one.budget for row in rows for one in row.trainings):
        batches = list(dict.fromkeys(one.global_batch for row in rows for one in row.trainings))
        if len(batches) < 2 or not all(batch.isdigit() for batch in batches):
            continue
        chart = Chart(f"Accuracy against the batch, equal {budget}", "global batch", "test accuracy, %", log_x=True)
        for row in rows:
            known = [(int(batch), list(row.accuracies((batch, budget)).values())) for batch in batches]
            known = [(batch, values) for batch, values in known if values]
            intervals = [confidence_interval(values, (0, 1)) for _, values in known]
            low, high = (
                [end and 100 * end for end in ends]
                for ends in ([i.low for i in intervals], [i.high for i in intervals])
            )
            means = [100 * interval.mean for interval in intervals]
            chart.line(row.name, [batch for batch, _ in known], means, band=Band(low, high, [len(v) for _, v in known]))
        charts.append(chart)
    return charts
