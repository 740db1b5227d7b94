"""What the demo's trainings came to: mean and interval over seeds, and how much of the loss each way wins back."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigbatch.demo.stations import BASELINE, LEGW, UNSCALED, Station
from bigbatch.sweeps import interval


@dataclass(frozen=True)
class Measured:
    """One station over its seeds. Diverged trainings are counted beside the mean, never in it."""

    station: Station
    seeds: Sequence[int]
    summaries: list[dict[str, Any]]

    @property
    def accuracies(self) -> list[float]:
        return [summary["test_accuracy"] for summary in self.summaries if summary["diverged_at_step"] is None]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def diverged(self) -> int:
        return len(self.summaries) - len(self.accuracies)

    def described(self) -> str:
        """`96.1 % ± 0.4 (n=3)`, with how many diverged."""
        beside = f", {self.diverged} diverged" if self.diverged else ""
        if not self.accuracies:
            return f"none (n=0{beside})"
        mean, _, high = interval(self.accuracies)
        doubt = "" if high is None else f" ± {100 * (high - mean):.1f}"
        return f"{100 * mean:.1f} %{doubt} (n={len(self.accuracies)}{beside})"


Found = dict[str, Measured]  # by the station's name


def won_back(found: Found, name: str = LEGW) -> float | None:
    """The share of the accuracy lost by a larger batch that a way of scaling gives back; None where none was lost."""
    small, large, scaled = (found[station].mean for station in (BASELINE, UNSCALED, name))
    if small is None or large is None or scaled is None or small <= large:
        return None
    return (scaled - large) / (small - large)


def gap(found: Found) -> str:
    """The generalisation gap in one line."""
    small, large = found[BASELINE], found[UNSCALED]
    times = large.station.global_batch // small.station.global_batch
    return (
        f"{times} times the batch with nothing else changed: {small.described()} becomes {large.described()}, "
        f"in {large.summaries[0]['steps']:,} steps instead of {small.summaries[0]['steps']:,}."
    )


def verdict(found: Found, name: str) -> str:
    """`LEGW wins back 93 % of what was lost.`"""
    share = won_back(found, name)
    plain_name = name.removeprefix("+ ")
    if share is None:
        return f"{plain_name}: nothing was lost, or nothing was learned, so there is nothing to win back."
    return f"{plain_name} wins back {100 * share:.0f} % of the accuracy that was lost."
