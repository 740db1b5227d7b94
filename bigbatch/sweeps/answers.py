"""From runs to answers: accuracy against the batch with its doubt, where it is lost, and which batch a lr prefers.

Intervals are 95 % Student-t intervals of the mean over seeds, of shares cut to 0-100 %; one seed has none. Diverged
runs are counted beside the mean, never in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from bigbatch.sweeps.asked import label
from bigbatch.sweeps.intervals import CONFIDENCE, confidence_interval, format_mean, format_metric, metric_bounds
from bigbatch.sweeps.rows import MEASURES, Row

_SEEDS_FOR_A_BATCH = 3  # batches are few: two seeds agree by chance, and their interval would look certain


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class Group(_Value):
    """One setting, its seeds together."""

    label: str
    variant: str
    settings: dict[str, Any]
    global_batch: int
    lr: float
    all_else: str
    values: tuple[float, ...]  # of the runs that are done, by seed
    n: int
    mean: float | None
    low: float | None  # None where n is below 2
    high: float | None
    diverged: int
    failed: int
    unfinished: int


class Curve(_Value):
    """Accuracy against the batch, all else equal, and where it is lost."""

    label: str
    groups: tuple[Group, ...]  # by batch
    baseline_batch: int
    holds_to: int | None  # the largest batch up to which no mean is worse than the baseline's interval
    leaves_at: int | None  # the critical batch: the first that is worse, or has a run that diverged
    note: str


class Preferred(_Value):
    """The batch with the best mean at one learning rate (Gahlot et al., Figs. 4 and 5)."""

    label: str
    lr: float
    batch: int
    mean: float
    low_batch: float | None  # interval of the mean over seeds of log2(each seed's own best batch); None below 3 seeds
    high_batch: float | None
    n: int
    edge: str | None  # "lower" or "upper": the grid ends where the best is
    note: str


class Answers(_Value):
    measure: str
    measured_as: str  # in words: a search measures on other samples than the test's
    confidence: float = CONFIDENCE
    groups: tuple[Group, ...]
    curves: tuple[Curve, ...]
    preferred: tuple[Preferred, ...]
    best: Group | None
    edges: tuple[str, ...]
    notes: tuple[str, ...]


def answers(rows: Iterable[Row], baseline_batch: int | None = None) -> Answers:
    """All answers. `baseline_batch` is the batch that others are held against: the smallest of a curve by default."""
    rows = list(rows)
    measure = next((row.measure for row in rows if row.metric is not None), rows[0].measure if rows else "")
    groups = grouped(rows)
    over_batches = _over_batches(groups)
    curves = [curve(alike, measure, baseline_batch) for alike in over_batches]
    preferred = [found for alike in over_batches if (found := preferred_batch(alike, rows, measure))]
    best = _best(groups, measure)
    return Answers(
        measure=measure,
        measured_as=measure.replace("_", " "),
        groups=tuple(groups),
        curves=tuple(curves),
        preferred=tuple(preferred),
        best=best,
        edges=tuple(_edges(groups, best)),
        notes=(*_notes(groups), *damages(rows), *cuts(groups, measure)),
    )


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Rows that differ in nothing but the seed, together. Nobody knows where a run belongs that cannot be read."""
    together: dict[str, list[Row]] = {}
    for row in (row for row in rows if row.global_batch is not None):
        together.setdefault(json.dumps([row.variant, dict(row.settings)]), []).append(row)
    return [_group(alike) for alike in together.values()]


def _group(rows: list[Row]) -> Group:
    values = [row.metric for row in sorted(rows, key=lambda row: row.seed) if row.metric is not None]
    first = rows[0]
    assert first.global_batch is not None
    assert first.lr is not None
    mean, low, high = confidence_interval(values, metric_bounds(first.measure)) if values else (None, None, None)
    return Group(
        label=first.label,
        variant=first.variant,
        settings=dict(first.settings),
        global_batch=first.global_batch,
        lr=first.lr,
        all_else=first.all_else,
        values=tuple(values),
        n=len(values),
        mean=mean,
        low=low,
        high=high,
        diverged=sum(row.status == "diverged" for row in rows),
        failed=sum(row.status in ("failed", "damaged") for row in rows),
        unfinished=sum(row.status in ("missing", "running", "stopped", "pruned") for row in rows),
    )


def _over_batches(groups: Iterable[Group]) -> list[list[Group]]:
    """Groups that differ in the batch alone, whatever they are called, in ascending order of it."""
    together: dict[str, list[Group]] = {}
    for group in groups:
        together.setdefault(group.all_else, []).append(group)
    return [sorted(alike, key=lambda group: group.global_batch) for alike in together.values() if len(alike) > 1]


def _common_label(groups: Sequence[Group]) -> str:
    """What groups of different batches have in common in their names: 'LEGW 128' and 'LEGW 8192' are 'LEGW'."""
    names = {re.sub(rf"\b{group.global_batch}\b", "", group.variant).strip(" ,:=@") for group in groups}
    variant = names.pop() if len(names) == 1 else " / ".join(dict.fromkeys(group.variant for group in groups))
    return label(variant, {name: value for name, value in groups[0].settings.items() if name != "global_batch"})


def curve(groups: Sequence[Group], measure: str, baseline_batch: int | None = None) -> Curve:
    """Where the mean leaves the baseline's interval on the worse side. A batch with a diverged run has left it."""
    groups = sorted(groups, key=lambda group: group.global_batch)
    baseline = next((group for group in groups if group.global_batch == baseline_batch), groups[0])
    about: dict[str, Any] = {
        "label": _common_label(groups),
        "groups": tuple(groups),
        "baseline_batch": baseline.global_batch,
    }
    if baseline.n == 0:
        note = f"the baseline batch {baseline.global_batch} is not there yet, so no critical batch"
        return Curve(**about, holds_to=None, leaves_at=None, note=note)
    if baseline.low is None or baseline.high is None:
        note = (
            f"no interval at the baseline batch {baseline.global_batch} (n={baseline.n}), so no critical batch: "
            f"use --seeds 3 or more"
        )
        return Curve(**about, holds_to=None, leaves_at=None, note=note)
    holds_to = baseline.global_batch
    judged = [baseline]
    for group in groups[groups.index(baseline) + 1 :]:
        if group.mean is None and not group.diverged:
            note = f"holds up to {holds_to}; {group.global_batch} is not there yet{_so_far(judged)}"
            return Curve(**about, holds_to=holds_to, leaves_at=None, note=note)
        judged.append(group)
        worse = group.mean is None or _worse(group.mean, baseline, measure)
        if worse or group.diverged:
            note = f"critical batch {group.global_batch}: {_why(group, baseline, measure)}; it holds up to {holds_to}"
            note += _so_far(judged)
            return Curve(**about, holds_to=holds_to, leaves_at=group.global_batch, note=note)
        holds_to = group.global_batch
    note = f"no critical batch up to {holds_to}: no mean is worse than the interval at {baseline.global_batch}"
    return Curve(**about, holds_to=holds_to, leaves_at=None, note=note + _so_far(judged))


def _so_far(groups: Iterable[Group]) -> str:
    """Which batches were judged by some of their seeds."""
    some = [
        f"{group.global_batch} has {group.n + group.diverged} of {group.n + group.diverged + missing} seeds"
        for group in groups
        if (missing := group.failed + group.unfinished)
    ]
    return f"; so far: {', '.join(some)}" if some else ""


def _worse(mean: float, baseline: Group, measure: str) -> bool:
    assert baseline.low is not None
    assert baseline.high is not None
    return mean < baseline.low if MEASURES[measure] else mean > baseline.high


def _why(group: Group, baseline: Group, measure: str) -> str:
    if group.diverged:
        return f"{group.diverged} of {group.diverged + group.n} runs diverged"
    side = (
        f"below {format_metric(baseline.low, measure)}"
        if MEASURES[measure]
        else f"above {format_metric(baseline.high, measure)}"
    )
    return f"{format_metric(group.mean, measure)} is {side}, the end of the interval at {baseline.global_batch}"


def preferred_batch(groups: Sequence[Group], rows: Iterable[Row], measure: str) -> Preferred | None:
    """The batch of the best mean; its interval from each seed's own best batch, on a logarithmic scale."""
    best = _best(groups, measure)
    if best is None or best.mean is None:
        return None
    batches = sorted(group.global_batch for group in groups)
    edge = {batches[0]: "lower", batches[-1]: "upper"}.get(best.global_batch)
    labels = {group.label for group in groups}
    by_seed: dict[int, list[Row]] = {}
    for row in rows:
        if row.label in labels and row.metric is not None:
            by_seed.setdefault(row.seed, []).append(row)
    whole = [seen for seen in by_seed.values() if len(seen) == max(map(len, by_seed.values()))]
    own = [math.log2(min(seen, key=lambda row: _rank(row.metric, measure)).global_batch or 1) for seen in whole]
    low, high = confidence_interval(own)[1:] if len(own) >= _SEEDS_FOR_A_BATCH else (None, None)
    if low is None or high is None:
        doubt = f"n={len(own)}, no interval"
    else:
        doubt = f"n={len(own)}, interval over the seeds' own best batches {2**low:.0f} to {2**high:.0f}"
    warning = f"; it is the {edge} end of the grid: widen it" if edge else ""
    return Preferred(
        label=_common_label(groups),
        lr=best.lr,
        batch=best.global_batch,
        mean=best.mean,
        low_batch=None if low is None else 2**low,
        high_batch=None if high is None else 2**high,
        n=len(own),
        edge=edge,
        note=f"learning rate {best.lr:g} prefers batch {best.global_batch} ({doubt}){warning}",
    )


def _best(groups: Iterable[Group], measure: str) -> Group | None:
    done = [group for group in groups if group.mean is not None]
    return min(done, key=lambda group: _rank(group.mean, measure)) if done else None


def _rank(value: float | None, measure: str) -> float:
    """Smaller is better."""
    assert value is not None
    return -value if MEASURES[measure] else value


def _edges(groups: Sequence[Group], best: Group | None) -> list[str]:
    """The fields of the best group whose value is the smallest or the largest of its grid."""
    found = []
    for name, value in best.settings.items() if best else ():
        tried = {group.settings.get(name) for group in groups if _hashable(group, name)}  # what diverged, too
        numbers = [number for number in tried if isinstance(number, int | float) and not isinstance(number, bool)]
        if len(numbers) > 1 and value in (min(numbers), max(numbers)):
            end = "smallest" if value == min(numbers) else "largest"
            found.append(f"the best {name} is {value:g}, the {end} of its grid: a better one may lie outside")
    return found


def _hashable(group: Group, name: str) -> bool:
    return isinstance(group.settings.get(name), int | float | str)


def _notes(groups: Sequence[Group]) -> list[str]:
    notes = []
    if any(group.n == 1 for group in groups):
        notes.append("settings with n=1 have no interval: use --seeds 3 or more")
    if sum(group.n > 0 for group in groups) > 1:
        notes.append("the best of several is chosen by the same numbers that it is shown with: it flatters itself")
    return notes


def damages(rows: Iterable[Row]) -> list[str]:
    """A sentence for each run whose files are damaged."""
    return [f"{row.folder.name} is left out: {row.problem}" for row in rows if row.status == "damaged"]


def cuts(groups: Iterable[Group], measure: str) -> list[str]:
    ends = metric_bounds(measure)
    if any(group.low == ends[0] or group.high == ends[1] for group in groups if group.low != group.high):
        return ["intervals are t-intervals, cut to 0-100 %"]
    return []


def format_group(group: Group, measure: str) -> str:
    """`98.65 % ± 0.12 (n=3)`."""
    diverged = f", {group.diverged} diverged" if group.diverged else ""
    return f"{format_mean(group.values, measure)} (n={group.n}{diverged})"
