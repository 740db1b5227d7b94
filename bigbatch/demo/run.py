"""The demo from start to end: one sweep on all cores, advice for its baseline, a filter by it, and what they say.

The sweep compares a baseline, tuned at its small batch, with four ways to train at 32 times that batch.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from bigbatch import datasets, filters, schedules
from bigbatch.advice import Advice, advise_run
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.errors import Problem, Stopped
from bigbatch.filters.pipeline.results import SampleCounts, count_samples
from bigbatch.libraries import is_installed
from bigbatch.output.progress import show_progress
from bigbatch.recipes import legw_digits
from bigbatch.run import Run
from bigbatch.sweeps import RunResult, SeedGroup, Sweep, SweepPoint, WorkerOptions, group_by_setting
from bigbatch.sweeps.config import Settings

BATCH_FACTOR = 32
BASELINE, UNSCALED = "baseline", f"{BATCH_FACTOR}x the batch"
LINEAR, LEGW, LEGW_LARS = "+ linear scaling", "+ LEGW", "+ LEGW with LARS"
DROP_FRACTION = 0.05
_MOST_PICTURES = 20
_STOPPED = "stopped; finished runs and checkpoints are kept, and the same command resumes the demo"


@dataclass(frozen=True)
class DemoOptions:
    runs_dir: Path  # the sweeps are folders in it
    quiet: bool = True
    seeds: int = 3
    epochs: float | None = None  # shortens all runs, for tests
    advice_seconds: float = 10.0

    def shorten(self, run: Run) -> Run:
        return run.with_settings([f"epochs={self.epochs}"] if self.epochs else [])


class VariantResult(NamedTuple):
    """A variant of the sweep: its mean over seeds, and its runs."""

    run: Run  # with the first seed
    group: SeedGroup
    runs: Sequence[RunResult]  # by seed

    @property
    def peak_lr(self) -> float:
        """The largest learning rate of the schedule. LARS multiplies it for each layer."""
        assert self.run.epochs is not None
        return max(point.lr for point in schedules.plan(self.run, self.run.epochs))

    @property
    def steps(self) -> int:
        return int(self.runs[0].summary["steps"])

    def describe(self) -> str:
        """`96.1 % ± 0.4 (n=3)`, with the number of diverged runs."""
        return self.group.describe("test_accuracy", digits=1)


Comparison = Mapping[str, VariantResult]  # by variant


class DroppedDigits(NamedTuple):
    """The digits that belong to no cluster of their class in the trained baseline."""

    counts: SampleCounts
    misclassified: int  # of the dropped digits
    pictures: list[tuple[bytes, str]]  # of the highest scores: PNG and caption
    reducer: str

    def describe(self) -> str:
        most = sorted(self.counts.by_class.items(), key=lambda item: -item[1].dropped)[:3]
        classes = ", ".join(f"{counts.dropped} of class {name}" for name, counts in most)
        samples = self.counts.kept + self.counts.dropped
        return f"the network filter drops {self.counts.dropped} of {samples:,} digits, most of them {classes}"


class DemoReport(NamedTuple):
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
    baseline, threads = comparison[BASELINE], torch.get_num_threads()
    torch.set_num_threads(1)  # as in the sweep's runs: more threads slow down a model as small as this one
    try:
        with show_progress(not options.quiet):
            advice = advise_run(baseline.run, seconds=options.advice_seconds, quiet=options.quiet)
            dropped = filter_digits(baseline.runs[0].folder)
    except KeyboardInterrupt:
        raise Stopped(_STOPPED) from None
    finally:
        torch.set_num_threads(threads)
    return DemoReport(comparison, advice, dropped, folder, time.monotonic() - start)


def build_variants() -> dict[str, Settings]:
    """Return what each variant of the sweep changes in the baseline `legw_digits.run()`."""
    large = {"global_batch": BATCH_FACTOR * legw_digits.BASELINE_BATCH}
    warmup = {"kind": "gradual", "epochs": legw_digits.WARMUP_EPOCHS}  # as long as the baseline's
    unscaled = {"name": "composed", "warmup": warmup}
    linear = unscaled | {"scaling": "linear", "baseline_batch": legw_digits.BASELINE_BATCH}
    lars = legw_digits.lars().model_dump(mode="json", include={"optimizer", "schedule"})
    return {
        BASELINE: {},
        UNSCALED: large | {"schedule": unscaled},
        LINEAR: large | {"schedule": linear},
        LEGW: large,
        LEGW_LARS: large | lars,
    }


def run_sweep(sweep: Sweep, quiet: bool) -> list[RunResult]:
    """Run what is missing, one thread per run on all cores. A run that fails raises a Problem."""
    try:
        sweep.run(WorkerOptions(jobs=len(os.sched_getaffinity(0)), quiet=quiet))
    except Stopped:
        raise Stopped(_STOPPED) from None
    results = sweep.run_results()
    if failed := next((result for result in results if result.problem), None):
        raise Problem(f"{failed.label}, seed {failed.seed}: {failed.problem}")
    return results


def compare_variants(points: Sequence[SweepPoint], results: Sequence[RunResult]) -> Comparison:
    runs = {point.variant: point.run for point in reversed(points)}  # the first seed is the last to be set
    return {
        group.variant: VariantResult(runs[group.variant], group, [r for r in results if r.variant == group.variant])
        for group in group_by_setting(results)
    }


def filter_digits(run_folder: Path) -> DroppedDigits:
    """Filter the digits by a trained run. Without openTSNE, DBSCAN works on principal components."""
    from PIL import Image

    dataset = datasets.load(Folder(run_folder).run().dataset)
    reducer = "tsne" if is_installed("openTSNE") else "none"
    kept = filters.network(run_folder, dataset, drop=DROP_FRACTION, per_class=False, reducer=reducer)
    samples, names = dataset.train, dataset.classes
    assert isinstance(samples, InMemoryImages)
    predictions = torch.as_tensor(kept.arrays["prediction"])
    pictures = []
    for sample in kept.score.argsort(descending=True)[:_MOST_PICTURES].tolist():
        label, prediction = names[int(samples.labels[sample])], names[int(predictions[sample])]
        dark_on_light = 255 * (1 - samples.images[sample, 0] / samples.white)
        png = io.BytesIO()
        Image.fromarray(dark_on_light.round().byte().numpy()).save(png, "PNG")
        pictures.append((png.getvalue(), label if label == prediction else f"{label}, predicted as {prediction}"))
    misclassified = int((predictions != samples.labels)[~kept.mask].sum())
    return DroppedDigits(count_samples(kept.mask, samples.labels, names), misclassified, pictures, reducer)


def list_conclusions(comparison: Comparison) -> list[str]:
    """Return the generalization gap, and what each rule wins back of it, one sentence each."""
    small, large = comparison[BASELINE], comparison[UNSCALED]
    gap = (
        f"{BATCH_FACTOR} times the batch with nothing else changed: {small.describe()} becomes {large.describe()}, "
        f"in {large.steps:,} steps instead of {small.steps:,}."
    )
    return [gap, *(describe_gain(comparison, variant) for variant in (LINEAR, LEGW, LEGW_LARS))]


def describe_gain(comparison: Comparison, variant: str) -> str:
    """`LEGW wins back 91 % of the accuracy that was lost (by seed: 90, 91, 92 %).`"""
    fraction, *fraction_by_seed = fractions_won_back(comparison, variant)
    name = variant.removeprefix("+ ")
    if fraction is None:
        return f"{name}: nothing was lost, or nothing was learned, so there is nothing to win back."
    by_seed = ", ".join(f"{100 * one:.0f}" for one in fraction_by_seed if one is not None)
    if fraction < 0:
        return f"{name} wins nothing back: it loses {-100 * fraction:.0f} % more (by seed: {by_seed} % won back)."
    return f"{name} wins back {100 * fraction:.0f} % of the accuracy that was lost (by seed: {by_seed} %)."


def fractions_won_back(comparison: Comparison, variant: str) -> list[float | None]:
    """Return the fraction of the accuracy lost by the larger batch that a variant regains; None if none was lost.

    First that of the means, then that of each seed, which shows its uncertainty.
    """
    compared = [comparison[name] for name in (BASELINE, UNSCALED, variant)]
    values = [[result.group.mean, *(run.value for run in result.runs)] for result in compared]
    return [
        None
        if small is None or large is None or scaled is None or small <= large
        else (scaled - large) / (small - large)
        for small, large, scaled in zip(*values, strict=True)
    ]


class TuningChoice(NamedTuple):
    """A field of the recipe and the values that are tried at the small batch, with everything else as in the recipe.

    The highest mean accuracy on held-out training samples wins. Neither the test set nor the large batch is used.
    """

    name: str
    run: Run
    field: str
    values: tuple[float | str, ...]


def list_choices() -> list[TuningChoice]:
    dataset = {"name": "held_out", "of": {"name": "digits"}, "fraction": 0.2}
    run, lars = (
        Run(**(recipe.model_dump(mode="json") | {"name": "demo-tuning", "dataset": dataset}))
        for recipe in (legw_digits.run(), legw_digits.lars())
    )
    return [
        TuningChoice("initial weights", run, "model.init", ("tensorflow", "torch")),
        TuningChoice("learning rate", run, "optimizer.lr", (0.0125, 0.05, 0.2)),
        TuningChoice("warm-up epochs", run, "schedule.warmup_epochs", (0.0125, 0.05, 0.2)),
        TuningChoice("trust coefficient of LARS", lars, "optimizer.trust_coefficient", (0.025, 0.1, 0.4)),
    ]


def tune(options: DemoOptions) -> list[tuple[TuningChoice, list[SeedGroup]]]:
    """Run a grid sweep for each choice, and return its values as groups of seeds."""
    tuned = []
    for choice in list_choices():
        run, folder = options.shorten(choice.run), options.runs_dir / "demo-tuning" / choice.field
        grids = {choice.field: choice.values}
        sweep = Sweep.create(run, folder, title=choice.name, grids=grids, seeds=options.seeds)
        tuned.append((choice, group_by_setting(run_sweep(sweep, options.quiet))))
    return tuned


def choose_value(groups: Iterable[SeedGroup]) -> float | str:
    """Return the value with the highest mean, of equal ones the larger. A diverged run counts as an accuracy of 0."""
    ranked = ((sum(group.values) / max(1, group.n + group.diverged), *group.settings.values()) for group in groups)
    best: tuple[float, float | str] = max(ranked)
    return best[1]
