"""The frontier: how far the batch of a training can go, method by method, each tuned at the small batch alone.

Tuning rule. Every method has as many trials as any other: its learning rates at the first of its weight decays, then
the other weight decays at the best learning rate, with one seed, judged on held-out training samples (Penn Treebank: on
its validation text) and, if wanted, with fewer samples and epochs. Larger batches follow by the scaling rule of the
method's optimizer (`Run.at_batch`). Nothing is tuned at a large batch, and the test set chooses nothing.

A decoupled weight decay is chosen as lr·λ·steps, how often the weights shrink by e during the training: λ itself would
depend on the learning rate and on the length of the trials (Wang & Aitchison 2024; Bergsma et al. 2025).

All methods have the same schedule: a straight warm-up, then a straight line to 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any

from bigbatch import batch_sizes, parts
from bigbatch.errors import Problem
from bigbatch.output.figures import Band, Chart
from bigbatch.run import Run
from bigbatch.sweeps.analysis import BatchCurve, SeedGroup, SweepResults
from bigbatch.sweeps.config import Settings
from bigbatch.sweeps.folder import Sweep
from bigbatch.sweeps.intervals import format_metric
from bigbatch.sweeps.results import HIGHER_IS_BETTER
from bigbatch.sweeps.search import hold_out
from bigbatch.sweeps.worker import WorkerOptions

_LINEAR_DECAY = {"kind": "polynomial", "power": 1.0, "over": "after_warmup"}
_LOSSLESS = {"test_accuracy": 0.0015, "test_perplexity": 0.5}  # how much worse than the best small batch is no loss


@dataclass(frozen=True)
class Method:
    """An optimizer and the values that its learning rate and weight decay are chosen from."""

    optimizer: Mapping[str, Any]
    lrs: tuple[float, ...]
    weight_decays: tuple[float, ...]  # the first is that of the trials of learning rates; lr·λ·steps if decoupled
    warmup: float = 0.04  # fraction of the training, at the small batch

    def settings(self, run: Run, steps: int, lr: float, weight_decay: float) -> dict[str, Any]:
        """Return what the method changes in a run of this many steps."""
        assert run.epochs is not None
        if parts.configure("optim", dict(self.optimizer)).decouples_weight_decay:
            weight_decay /= lr * steps
        warmup = {"kind": "gradual", "epochs": self.warmup * run.epochs}
        return {
            "optimizer": {**self.optimizer, "lr": lr, "weight_decay": weight_decay},
            "schedule": {"name": "composed", "warmup": warmup, "decay": _LINEAR_DECAY},
        }


# LEGW multiplies the warm-up by the batch: it begins with a tenth of the others'
METHODS: dict[str, Method] = {
    "momentum": Method({"name": "momentum"}, (0.03, 0.1, 0.3, 1.0), (0.0, 1e-5, 1e-4), warmup=0.004),
    "lars": Method({"name": "lars", "trust_coefficient": 0.02}, (0.03, 0.1, 0.3, 1.0), (0.0, 1e-5, 1e-4), warmup=0.004),
    "lamb": Method({"name": "lamb"}, (0.001, 0.003, 0.01, 0.03), (0.01, 0.0, 0.1), warmup=0.004),
    "adamw": Method({"name": "adamw"}, (0.001, 0.003, 0.01, 0.03), (1.0, 0.0, 3.0)),
    "muon": Method({"name": "muon"}, (0.002, 0.006, 0.02, 0.06), (1.0, 0.0, 3.0)),
    "soap": Method({"name": "soap"}, (0.001, 0.003, 0.01, 0.03), (1.0, 0.0, 3.0)),
}


@dataclass(frozen=True)
class FrontierConfig:
    """What is compared, and the budget of a trial of the tuning."""

    batches: Sequence[int]  # the smallest is the run's own
    targets: Sequence[str]  # the figure shows the first
    methods: Sequence[str] = tuple(METHODS)
    seeds: int = 1
    tuning_epochs: float | None = None  # the run's own
    tuning_fraction: float = 1.0  # of the training samples that are not held out
    held_out: float = 0.1


@dataclass(frozen=True)
class Frontier:
    """The sweep over methods and batches, and what the tuning chose."""

    sweep: Sweep
    tuned: Mapping[str, Settings]
    results: SweepResults
    lossless: Mapping[str, int | None] = field(default_factory=dict)  # largest batch without loss, by method

    def describe(self) -> list[str]:
        """Return what was chosen at the small batch, and the largest batch without loss of each method."""
        chosen = [
            f"{name}: lr {settings['optimizer']['lr']:g}, weight decay {settings['optimizer']['weight_decay']:g}"
            for name, settings in self.tuned.items()
        ]
        limit = format_metric(_LOSSLESS[self.results.metric], self.results.metric)
        return (
            chosen
            + [
                f"{name}: no batch without loss" if batch is None else f"{name}: no loss up to batch {batch}"
                for name, batch in self.lossless.items()
            ]
            + [f"no loss: at most {limit} worse than the best mean at the smallest batch"]
        )


def run_frontier(
    run: Run, folder: Path | str, config: FrontierConfig, options: WorkerOptions | None = None
) -> Frontier:
    """Tune each method at the run's batch, train it at all batches and write the figure; nothing is trained twice."""
    folder, options = Path(folder), options or WorkerOptions()
    tuned = tune(run, folder, config, options)
    sweep = create_sweep(run, folder, config, tuned, options)
    sweep.run(options)
    return write_frontier(sweep, tuned)


def tune(run: Run, folder: Path, config: FrontierConfig, options: WorkerOptions) -> dict[str, dict[str, Any]]:
    """Return the settings of each method with the learning rate and the weight decay that its trials chose."""
    trial = tuning_run(run, config)
    methods = {name: find_method(name) for name in config.methods}
    first = {name: [(lr, method.weight_decays[0]) for lr in method.lrs] for name, method in methods.items()}
    best = _run_trials(trial, folder / "tuning", first, options)
    second = {name: [(best[name][0], decay) for decay in method.weight_decays] for name, method in methods.items()}
    best = _run_trials(trial, folder / "tuning", second, options)
    steps = count_steps(run, options.data_dir)
    return {name: methods[name].settings(run, steps, *best[name]) for name in methods}


def tuning_run(run: Run, config: FrontierConfig) -> Run:
    """Return the run of a trial: tested on held-out samples, and shortened."""
    if run.epochs is None:
        raise Problem("a frontier compares batches at equal epochs, and this run has a budget of steps: set epochs=...")
    fields = hold_out(run, config.held_out).model_dump(mode="json")
    fields |= {"epochs": config.tuning_epochs or run.epochs, "evaluations_per_epoch": 1}
    if config.tuning_fraction < 1:
        if run.filter:
            raise Problem("tuning with a fraction of the samples needs a run without a filter: use --tuning-fraction 1")
        fields["filter"] = {"name": "random", "drop": 1 - config.tuning_fraction}
    return Run(**fields)


def _run_trials(
    trial: Run, folder: Path, trials: Mapping[str, Sequence[tuple[float, float]]], options: WorkerOptions
) -> dict[str, tuple[float, float]]:
    """Train each method with each of its pairs of learning rate and weight decay, and return the best pair of each."""
    pairs = {f"{name} {lr:g} {decay:g}": (name, lr, decay) for name in trials for lr, decay in trials[name]}
    steps = count_steps(trial, options.data_dir)
    variants = {key: METHODS[name].settings(trial, steps, lr, decay) for key, (name, lr, decay) in pairs.items()}
    before = Sweep.open(folder).config.variants if Sweep.is_sweep(folder) else {}
    sweep = Sweep.create(trial, folder, options.data_dir, variants=before | variants, title=f"{trial.name}: tuning")
    results = sweep.run(options)
    best: dict[str, tuple[float, float]] = {}
    for group in sorted(results.groups, key=lambda group: _rank(group, results.metric)):
        if group.variant in pairs:
            name, lr, decay = pairs[group.variant]
            best.setdefault(name, (lr, decay))
    return best


def count_steps(run: Run, data_dir: Path | None) -> int:
    """Return the steps of a run with a constant batch."""
    from bigbatch import datasets, filters
    from bigbatch.training.batches import Batches

    dataset, batch = datasets.load(run.dataset, data_dir), batch_sizes.largest(run.global_batch)
    samples = Batches(dataset, run.seed, filters.kept_indices(run.filter, dataset)).epoch_samples(batch)
    return ceil((run.epochs or 0) * samples / batch)


def find_method(name: str) -> Method:
    if name not in METHODS:
        raise Problem(f"there is no method '{name}': use some of {', '.join(METHODS)}")
    return METHODS[name]


def create_sweep(
    run: Run, folder: Path, config: FrontierConfig, tuned: Mapping[str, Settings], options: WorkerOptions
) -> Sweep:
    """Create the sweep of all methods, batches and seeds."""
    base = batch_sizes.largest(run.global_batch)
    if not config.batches or min(config.batches) != base:
        raise Problem(f"the smallest of the batches {list(config.batches)} must be the run's, {base}: add it")
    return Sweep.create(
        run,
        folder / "sweep",
        options.data_dir,
        title=f"{run.name}: frontier",
        variants=dict(tuned),
        grids={"scale_batch": tuple(batch / base for batch in sorted(config.batches))},
        seeds=config.seeds,
        targets=tuple(config.targets),
    )


def _rank(group: SeedGroup, metric: str) -> float:
    """Return a number that is smaller for a better group; a group without a result comes last."""
    if group.mean is None:
        return inf
    return -group.mean if HIGHER_IS_BETTER[metric] else group.mean


def write_frontier(sweep: Sweep, tuned: Mapping[str, Settings]) -> Frontier:
    """Analyze the runs so far, and write frontier.png, .svg and .csv beside the sweep."""
    results = sweep.write_results()
    draw_frontier(sweep, results).save(sweep.folder.parent / "frontier")
    return Frontier(sweep, tuned, results, find_lossless_batches(results))


def find_lossless_batches(results: SweepResults) -> dict[str, int | None]:
    """Return the largest batch of each method up to which no mean is worse than the best mean at the smallest batch.

    At most .15 points of accuracy or .5 of perplexity count as no loss. A diverged run is a loss.
    """
    by_method: dict[str, list[SeedGroup]] = {}
    for group in sorted(results.groups, key=lambda group: group.global_batch):
        if group.mean is not None or group.diverged:
            by_method.setdefault(group.variant, []).append(group)
    smallest = min((group.global_batch for groups in by_method.values() for group in groups), default=0)
    small = [_rank(groups[0], results.metric) for groups in by_method.values() if groups[0].global_batch == smallest]
    lossless: dict[str, int | None] = dict.fromkeys(by_method)
    for method, groups in by_method.items():
        for group in groups:
            if group.diverged or _rank(group, results.metric) > min(small, default=inf) + _LOSSLESS[results.metric]:
                break
            lossless[method] = group.global_batch
    return lossless


def draw_frontier(sweep: Sweep, results: SweepResults) -> Chart:
    """Samples to the first target and the metric after all epochs, against the batch, a line per method."""
    accuracy = results.metric == "test_accuracy"
    run, metric = sweep.config.base_run(), results.metric_label + (" (%)" if accuracy else "")
    target, base = sweep.config.targets[0], batch_sizes.largest(run.global_batch)
    scale = f"{run.dataset.name}, {run.model.name}, {run.epochs:g} epochs, tuned at batch {base} alone; ×: not reached"
    title, y = f"{run.name}: how far the batch can go", f"samples to {target}"
    chart = Chart(title, "global batch", y, scale=scale, log_x=True, log_y=True, size_inches=(7.2, 6.4))
    panel = chart.add_panel(metric)
    for curve in (curve for curve in results.to_targets if curve.target == target):
        reached = [point for point in curve.fit.points if point.samples is not None]
        band = Band([p.low for p in reached], [p.high for p in reached], [p.runs for p in reached])
        chart.line(curve.label, [p.global_batch for p in reached], [p.samples or 0.0 for p in reached], band=band)
        missing = [point.global_batch for point in curve.fit.points if point.samples is None]
        chart.mark_missing(f"{curve.label}: not reached by all runs", missing)
    with chart.drawing_on(panel, metric):
        for means in results.curves:
            draw_curve(chart, means, results.metric)
    return chart


def draw_curve(chart: Chart, curve: BatchCurve, metric: str) -> None:
    """Draw the means and intervals of a curve over batches; accuracies in per cent."""
    factor = 100.0 if metric == "test_accuracy" else 1.0
    done = [(group, group.mean) for group in curve.groups if group.mean is not None]
    if done:
        lows, highs = (
            [None if end is None else factor * end for end in ends]
            for ends in zip(*((group.low, group.high) for group, _ in done), strict=True)
        )
        band = Band(lows, highs, [group.n for group, _ in done])
        batches, means = [group.global_batch for group, _ in done], [factor * mean for _, mean in done]
        chart.line(curve.label, batches, means, band=band)
