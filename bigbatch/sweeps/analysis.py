"""From runs to answers: accuracy against the batch with its interval, the critical batch, the best batch per lr.

Intervals are 95 % Student-t intervals of the mean over seeds, clipped to 0-100 % for accuracies; one seed has none.
Diverged runs are counted beside the mean, never in it.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from bigbatch.sweeps.config import SearchConfig, SweepPoint, format_settings
from bigbatch.sweeps.critical_batch import CriticalBatch, compare_critical_batches, critical_batch
from bigbatch.sweeps.intervals import CONFIDENCE, confidence_interval, format_mean, format_metric, metric_bounds
from bigbatch.sweeps.results import HIGHER_IS_BETTER, RunResult

_BATCH_FIELDS = ("global_batch", "scale_batch")
_SEEDS_FOR_A_BATCH = 3  # batches are few: two seeds agree by chance, and their interval would look certain


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class SeedGroup(_FrozenModel):
    """The runs of one setting, which differ only in the seed."""

    label: str
    variant: str
    settings: dict[str, Any]
    global_batch: int
    lr: float
    hash_without_batch: str
    values: tuple[float, ...]  # of the runs that are done, by seed
    n: int
    mean: float | None
    low: float | None  # None if n is below 2
    high: float | None
    diverged: int
    failed: int
    unfinished: int

    def describe(self, metric: str, digits: int = 2) -> str:
        """`98.65 % ± 0.12 (n=3)`."""
        diverged = f", {self.diverged} diverged" if self.diverged else ""
        return f"{format_mean(self.values, metric, digits)} (n={self.n}{diverged})"


class BatchCurve(_FrozenModel):
    """The metric against the batch, all else equal, and where it gets worse."""

    label: str
    groups: tuple[SeedGroup, ...]  # by batch
    baseline_batch: int
    largest_good_batch: int | None  # up to it, no mean is worse than the baseline's interval
    critical_batch: int | None  # the first one that is worse, or has a run that diverged
    note: str


class PreferredBatch(_FrozenModel):
    """The batch with the best mean at one learning rate (Gahlot et al., Figs. 4 and 5)."""

    label: str
    lr: float
    batch: int
    mean: float
    low_batch: float | None  # interval of the mean over seeds of log2(each seed's own best batch); None below 3 seeds
    high_batch: float | None
    n: int
    edge: str | None  # "lower" or "upper" if it is an end of the grid
    note: str


class TargetCurve(_FrozenModel):
    """Samples and steps to a target against the batch, all else equal or scaled by a rule, and the critical batch."""

    target: str
    label: str
    fit: CriticalBatch


class SweepResults(_FrozenModel):
    """Everything that a sweep has found out (results.json)."""

    metric: str
    metric_label: str  # in words: a search measures on held-out samples
    confidence: float = CONFIDENCE
    groups: tuple[SeedGroup, ...]
    curves: tuple[BatchCurve, ...]
    preferred: tuple[PreferredBatch, ...]
    to_targets: tuple[TargetCurve, ...] = ()
    best: SeedGroup | None
    edge_warnings: tuple[str, ...]
    notes: tuple[str, ...]


def analyze(
    results: Iterable[RunResult], baseline_batch: int | None = None, targets: Iterable[str] = ()
) -> SweepResults:
    """Analyze the runs of a sweep. `baseline_batch` is the batch that others are compared with, by default the
    smallest of a curve.
    """
    results = list(results)
    metric = next((result.metric for result in results if result.value is not None), "")
    metric = metric or (results[0].metric if results else "")
    groups = group_by_setting(results)
    by_batch = _group_over_batches(groups)
    best = _best_group(groups, metric)
    to_targets = [curve for target in targets for curve in fit_critical_batches(by_batch, results, target)]
    return SweepResults(
        metric=metric,
        metric_label=metric.replace("_", " "),
        groups=tuple(groups),
        curves=tuple(find_critical_batch(alike, metric, baseline_batch) for alike in by_batch),
        preferred=tuple(found for alike in by_batch if (found := find_preferred_batch(alike, results, metric))),
        to_targets=tuple(to_targets),
        best=best,
        edge_warnings=tuple(_warn_of_edges(groups, best)),
        notes=(
            *_compare_to_targets(to_targets),
            *_describe_sample_sizes(groups),
            *_describe_damage(results),
            *_describe_clipping(groups, metric),
        ),
    )


def analyze_search(results: Sequence[RunResult], search: SearchConfig, points: Sequence[SweepPoint]) -> SweepResults:
    """Analyze the trials of a search, which are judged on held-out samples."""
    found = analyze(results)
    perplexity = found.metric == "test_perplexity"
    judge = "validation text" if perplexity else "held-out training samples"
    notes = [note for point in points if (note := _describe_best_trial(results, search, point))]
    notes.append(f"measured on {judge}; the best of many trials looks too good: train it on all data, with --seeds 3")
    label = "validation perplexity" if perplexity else "held-out accuracy"
    update = {"metric_label": label, "edge_warnings": (), "notes": (*notes, *_describe_damage(results))}
    return found.model_copy(update=update)


def _describe_best_trial(results: Iterable[RunResult], search: SearchConfig, point: SweepPoint) -> str | None:
    """Return the best trial of a setting, and whether it lies at an end of its range."""
    fields = {scope.field for scope in search.ranges}
    alike = [
        result
        for result in results
        if result.variant == point.variant
        and {name: value for name, value in result.settings.items() if name not in fields} == dict(point.settings)
    ]
    done = [result for result in alike if result.value is not None]
    if not done:
        return None
    best = min(done, key=lambda result: _rank(result.value, result.metric))
    ends = {scope.field: scope.nearby_end(best.settings[scope.field]) for scope in search.ranges}
    at_ends = ", ".join(f"{field} at the {end} end of its range" for field, end in ends.items() if end)
    pruned = sum(result.status == "pruned" for result in alike)
    warning = f"; {at_ends}: widen it" if at_ends else ""
    return f"best of {len(alike)} trials, {pruned} of them pruned: {best.label}{warning}"


def group_by_setting(results: Iterable[RunResult]) -> list[SeedGroup]:
    """Group runs that differ only in the seed. A run whose description cannot be read belongs to no group."""
    together: dict[str, list[RunResult]] = {}
    for result in results:
        if result.global_batch is not None:
            together.setdefault(json.dumps([result.variant, dict(result.settings)]), []).append(result)
    return [_build_group(alike) for alike in together.values()]


def _build_group(results: list[RunResult]) -> SeedGroup:
    by_seed = sorted(results, key=lambda result: result.seed)
    values = [result.value for result in by_seed if result.value is not None]
    first = results[0]
    assert first.global_batch is not None
    assert first.lr is not None
    mean, low, high = confidence_interval(values, metric_bounds(first.metric)) if values else (None, None, None)
    return SeedGroup(
        label=first.label,
        variant=first.variant,
        settings=dict(first.settings),
        global_batch=first.global_batch,
        lr=first.lr,
        hash_without_batch=first.hash_without_batch,
        values=tuple(values),
        n=len(values),
        mean=mean,
        low=low,
        high=high,
        diverged=sum(result.status == "diverged" for result in results),
        failed=sum(result.status in ("failed", "damaged") for result in results),
        unfinished=sum(result.status in ("missing", "running", "stopped", "pruned") for result in results),
    )


def _group_over_batches(groups: Iterable[SeedGroup]) -> list[list[SeedGroup]]:
    """Return groups that differ only in the batch, whatever their names, in ascending order of it."""
    together: dict[str, list[SeedGroup]] = {}
    for group in groups:
        together.setdefault(group.hash_without_batch, []).append(group)
    return [sorted(alike, key=lambda group: group.global_batch) for alike in together.values() if len(alike) > 1]


def _common_label(groups: Sequence[SeedGroup]) -> str:
    """Return what the names of groups of different batches share: 'LEGW 128' and 'LEGW 8192' are 'LEGW'."""
    names = {re.sub(rf"\b{group.global_batch}\b", "", group.variant).strip(" ,:=@") for group in groups}
    variant = names.pop() if len(names) == 1 else " / ".join(dict.fromkeys(group.variant for group in groups))
    values = {name: value for name, value in groups[0].settings.items() if name not in _BATCH_FIELDS}
    return format_settings(variant, values)


def find_critical_batch(groups: Sequence[SeedGroup], metric: str, baseline_batch: int | None = None) -> BatchCurve:
    """Find the first batch whose mean is worse than the baseline's interval, or that has a diverged run."""
    groups = sorted(groups, key=lambda group: group.global_batch)
    baseline = next((group for group in groups if group.global_batch == baseline_batch), groups[0])

    def curve(note: str, largest_good_batch: int | None = None, critical_batch: int | None = None) -> BatchCurve:
        return BatchCurve(
            label=_common_label(groups),
            groups=tuple(groups),
            baseline_batch=baseline.global_batch,
            largest_good_batch=largest_good_batch,
            critical_batch=critical_batch,
            note=note,
        )

    if baseline.n == 0:
        return curve(f"the baseline batch {baseline.global_batch} is not finished yet, so no critical batch")
    if baseline.low is None:
        return curve(
            f"no interval at the baseline batch {baseline.global_batch} (n={baseline.n}), so no critical batch: "
            f"use --seeds 3 or more"
        )
    good = baseline.global_batch
    judged = [baseline]
    for group in groups[groups.index(baseline) + 1 :]:
        batch = group.global_batch
        if group.mean is None and not group.diverged:
            return curve(f"good up to {good}; {batch} is not finished yet{_describe_missing(judged)}", good)
        judged.append(group)
        if group.diverged or _is_worse(group, baseline, metric):
            reason = _explain_worse(group, baseline, metric)
            note = f"critical batch {batch}: {reason}; good up to {good}{_describe_missing(judged)}"
            return curve(note, good, batch)
        good = batch
    note = f"no critical batch up to {good}: no mean is worse than the interval at {baseline.global_batch}"
    return curve(note + _describe_missing(judged), good)


def fit_critical_batches(
    by_batch: Sequence[Sequence[SeedGroup]], results: Iterable[RunResult], target: str
) -> list[TargetCurve]:
    """Fit the critical batch of each curve. A run that diverged or never reached the target counts as such."""
    results, curves = list(results), []
    for groups in by_batch:
        labels, budget = {group.label for group in groups}, 0.0
        samples: dict[int, list[float | None]] = defaultdict(list)
        for result in results:
            if result.label in labels and result.global_batch and result.has_crossing(target):
                samples[result.global_batch].append(result.samples_to(target))
                budget = max(budget, result.summary["samples"])
        if samples:
            fit = critical_batch(samples, budget=budget)
            curves.append(TargetCurve(target=target, label=_common_label(groups), fit=fit))
    return curves


def _compare_to_targets(curves: Sequence[TargetCurve]) -> list[str]:
    """Name the critical batch of each curve, and say which curves extend that of the first."""
    notes = [
        f"{curve.target}, {curve.label}: critical batch {curve.fit.describe()}"
        + (f"; {curve.fit.note}" if curve.fit.note else "")
        for curve in curves
    ]
    for target in dict.fromkeys(curve.target for curve in curves):
        alike = {curve.label: curve.fit for curve in curves if curve.target == target}
        notes += [f"{target}: {sentence}" for sentence in compare_critical_batches(alike)]
    return notes


def _describe_missing(groups: Iterable[SeedGroup]) -> str:
    """Name the batches that were judged by only some of their seeds."""
    partial = [
        f"{group.global_batch} has {group.n + group.diverged} of {group.n + group.diverged + missing} seeds"
        for group in groups
        if (missing := group.failed + group.unfinished)
    ]
    return f"; so far: {', '.join(partial)}" if partial else ""


def _is_worse(group: SeedGroup, baseline: SeedGroup, metric: str) -> bool:
    assert group.mean is not None
    assert baseline.low is not None
    assert baseline.high is not None
    return group.mean < baseline.low if HIGHER_IS_BETTER[metric] else group.mean > baseline.high


def _explain_worse(group: SeedGroup, baseline: SeedGroup, metric: str) -> str:
    if group.diverged:
        return f"{group.diverged} of {group.diverged + group.n} runs diverged"
    side, end = ("below", baseline.low) if HIGHER_IS_BETTER[metric] else ("above", baseline.high)
    mean, bound = format_metric(group.mean, metric), format_metric(end, metric)
    return f"{mean} is {side} {bound}, the end of the interval at {baseline.global_batch}"


def find_preferred_batch(
    groups: Sequence[SeedGroup], results: Iterable[RunResult], metric: str
) -> PreferredBatch | None:
    """Find the batch with the best mean; its interval is that of each seed's own best batch, on a log scale."""
    best = _best_group(groups, metric)
    if best is None or best.mean is None:
        return None
    batches = sorted(group.global_batch for group in groups)
    edge = {batches[0]: "lower", batches[-1]: "upper"}.get(best.global_batch)
    labels = {group.label for group in groups}
    by_seed: dict[int, list[RunResult]] = {}
    for result in results:
        if result.label in labels and result.value is not None:
            by_seed.setdefault(result.seed, []).append(result)
    complete = [alike for alike in by_seed.values() if len(alike) == max(map(len, by_seed.values()))]
    own = [math.log2(min(alike, key=lambda r: _rank(r.value, metric)).global_batch or 1) for alike in complete]
    low, high = confidence_interval(own)[1:] if len(own) >= _SEEDS_FOR_A_BATCH else (None, None)
    interval = "no interval"
    if low is not None and high is not None:
        interval = f"interval over the seeds' own best batches {2**low:.0f} to {2**high:.0f}"
    warning = f"; it is the {edge} end of the grid: widen it" if edge else ""
    return PreferredBatch(
        label=_common_label(groups),
        lr=best.lr,
        batch=best.global_batch,
        mean=best.mean,
        low_batch=None if low is None else 2**low,
        high_batch=None if high is None else 2**high,
        n=len(own),
        edge=edge,
        note=f"learning rate {best.lr:g} prefers batch {best.global_batch} (n={len(own)}, {interval}){warning}",
    )


def _best_group(groups: Iterable[SeedGroup], metric: str) -> SeedGroup | None:
    done = [group for group in groups if group.mean is not None]
    return min(done, key=lambda group: _rank(group.mean, metric)) if done else None


def _rank(value: float | None, metric: str) -> float:
    """Return a number that is smaller for a better value."""
    assert value is not None
    return -value if HIGHER_IS_BETTER[metric] else value


def _warn_of_edges(groups: Sequence[SeedGroup], best: SeedGroup | None) -> list[str]:
    """Name the fields whose best value is the smallest or the largest of its grid."""
    warnings = []
    for name, value in best.settings.items() if best else ():
        values = [group.settings.get(name) for group in groups]  # diverged ones, too
        numbers = {v for v in values if isinstance(v, int | float) and not isinstance(v, bool)}
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            end = "smallest" if value == min(numbers) else "largest"
            warnings.append(f"the best {name} is {value:g}, the {end} of its grid: a better one may lie outside")
    return warnings


def _describe_sample_sizes(groups: Sequence[SeedGroup]) -> list[str]:
    notes = []
    if any(group.n == 1 for group in groups):
        notes.append("settings with n=1 have no interval: use --seeds 3 or more")
    if sum(group.n > 0 for group in groups) > 1:
        notes.append(
            "the best of several settings is chosen by the same runs that it is reported with: it looks better"
        )
    return notes


def _describe_damage(results: Iterable[RunResult]) -> list[str]:
    return [f"{result.folder.name} is left out: {result.problem}" for result in results if result.status == "damaged"]


def _describe_clipping(groups: Iterable[SeedGroup], metric: str) -> list[str]:
    low, high = metric_bounds(metric)
    clipped = any(group.low == low or group.high == high for group in groups if group.low != group.high)
    return ["intervals are t-intervals, clipped to 0-100 %"] if clipped else []
