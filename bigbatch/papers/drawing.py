"""What figures share: the paper's numbers beside ours, a curve against the batch, curves over epochs, claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_number
from bigbatch.papers.records import Missing, Results
from bigbatch.sweeps import confidence_interval


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that the results can contradict. None: they do not decide it, or are not complete."""

    text: str
    held: bool | None

    @classmethod
    def check(cls, text: str, test: Callable[[], bool | None]) -> Claim:
        try:
            held = test()
        except Missing:
            held = None
        return cls(text, None if held is None else bool(held))

    @classmethod
    def better(cls, results: Results, text: str, case: Any, *others: Any) -> Claim:
        """Claim that the mean of a case is better than that of each of the others."""
        return cls.check(text, lambda: all(better(results, case, other) for other in others))


@dataclass(frozen=True)
class Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""


@dataclass(frozen=True)
class Drawing:
    """A figure or a table as it was reproduced."""

    claims: Sequence[Claim]
    tables: Sequence[Table] = ()
    charts: Mapping[str, Chart] = field(default_factory=dict)  # by file name

    @property
    def verdict(self) -> str:
        held = [claim.held for claim in self.claims]
        if None in held:
            return "undecided" if False not in held else "not reproduced" if True not in held else "partly"
        return "reproduced" if all(held) else "partly" if any(held) else "not reproduced"


# -- tables and charts


def compare(results: Results, headings: Sequence[str], paper: Mapping[Any, float | None], unit: str = " %") -> Table:
    """Return a row per cell of the paper's table: the cell, its number, and the batch, lr and result of our run."""
    rows = []
    for case, number in paper.items():
        cells = case if isinstance(case, tuple) else (case,)
        if case not in results.records:
            continue
        run = results.run(case)
        printed = "not printed" if number is None else f"{number:g}{unit}"
        lr = f"{run.optimizer.lr:g}"  # type: ignore[attr-defined]
        rows.append([*cells, printed, f"{results.batch(case):,}", lr, results.describe(case)])
    return Table([*headings, "paper", "our batch", "our lr", f"ours ({results.scale})"], rows)


def chart_against(
    results: Results,
    title: str,
    series: Mapping[str, Iterable[Any]],
    *,
    x: str = "global batch",
    place: Callable[[Any], float] | None = None,
) -> Chart:
    """Draw accuracy or perplexity against the batch, or against `place(case)`: means, intervals, numbers of runs."""
    cases = [case for line in series.values() for case in line if results.records.get(case)]
    accuracy = not cases or results.of(cases[0])[0].metric == "test_accuracy"
    factor, label = (100, "test accuracy in %") if accuracy else (1, "test perplexity")
    chart = Chart(title, x, label, scale=describe_scale(results), log_x=True)
    for name, line in series.items():
        done = [case for case in line if results.records.get(case) and results.values(case)]
        intervals = [confidence_interval([factor * value for value in results.values(case)]) for case in done]
        band = Band(
            [one.low for one in intervals],
            [one.high for one in intervals],
            [len(results.values(case)) for case in done],
        )
        chart.line(name, map(place or results.batch, done), [one.mean for one in intervals], band=band)
    return chart


def chart_over_epochs(results: Results, title: str, lines: Mapping[str, Any], name: str, y: str) -> Chart:
    """Draw a measure of the evaluations over epochs: one line per case, the mean of its seeds with their range."""
    chart = Chart(title, "epoch", y, scale=describe_scale(results))
    for label, case in lines.items():
        curves = [curve for curve in results.curve(case, name) if curve[0]] if results.records.get(case) else []
        if not curves:
            continue
        length = min(len(values) for _, values in curves)
        stacked = np.array([values[:length] for _, values in curves], dtype=float)
        band = Band(stacked.min(0).tolist(), stacked.max(0).tolist(), len(curves))
        chart.line(label, curves[0][0][:length], stacked.mean(0), band=band, markers=False)
    return chart


def chart_probe(results: Results, title: str, axes: tuple[str, str], lines: Mapping[str, Any], **options: Any) -> Chart:
    """Draw lines of (x, y) pairs; logarithmic unless `options` of `Chart` say otherwise."""
    chart = Chart(title, *axes, scale=describe_scale(results), **{"log_x": True, "log_y": True, **options})
    for label, points in lines.items():
        pairs = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
        chart.line(label, [x for x, _ in pairs], [y for _, y in pairs], dashed=label.startswith("theory"))
    return chart


def describe_scale(results: Results) -> str:
    seeds = f"n = {results.seeds}" if results.seeds else ""
    return ", ".join(filter(None, [results.scale, results.setting, seeds]))


def show(number: float | None) -> str:
    return "–" if number is None or not math.isfinite(number) else format_number(number)


# -- predicates for claims


def rises(values: Iterable[float], slack: float = 0.0) -> bool:
    """Whether each value is above the one before it, or at most `slack` below."""
    return all(later > earlier - slack for earlier, later in pairwise(values))


def falls(values: Iterable[float], slack: float = 0.0) -> bool:
    return rises((-value for value in values), slack)


def not_worse(results: Results, case: Any, baseline: Any) -> bool | None:
    """Whether a case is as good as the baseline, judged by the 95 % interval of their difference over common seeds.

    None with a single seed, and where the interval holds both zero and a loss of more than a point (or 1 %).
    """
    ours, theirs = results.of(case), results.of(baseline)
    if any(record.diverged for record in ours):
        return False
    accuracy = ours[0].metric == "test_accuracy"
    scale = 100.0 if accuracy else -100.0 / results.mean(baseline)
    pairs = zip(results.values(case), results.values(baseline), strict=False)
    differences = [scale * (a - b) for a, b in pairs]
    if len(differences) < 2 or len(theirs) < 2:
        return None
    _, low, high = confidence_interval(differences)
    assert low is not None
    assert high is not None
    return True if low > -1.0 else False if high < 0 else None


def better(results: Results, case: Any, other: Any, margin: float = 0.0) -> bool:
    """Whether the mean of a case is better than another's by more than a margin, in points or units of perplexity."""
    higher_is_better = results.of(case)[0].metric == "test_accuracy"
    gain = results.mean(case) - results.mean(other)
    return gain > margin / 100 if higher_is_better else -gain > margin
