"""What the demo's trainings came to: mean and interval over seeds, and how much of the loss each way wins back."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bigbatch.demo.stations import BASELINE, LEGW, UNSCALED, Station
from bigbatch.sweeps import format_mean


@dataclass(frozen=True)
class Measured:
    """One station over its seeds. Diverged trainings are counted beside the mean, never in it."""

    station: Station
    seeds: Sequence[int]
    summaries: list[dict[str, Any]]

    @property
    def by_seed(self) -> list[float | None]:
        return [s["test_accuracy"] if s["diverged_at_step"] is None else None for s in self.summaries]

    @property
    def accuracies(self) -> list[float]:
        return [accuracy for accuracy in self.by_seed if accuracy is not None]

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def diverged(self) -> int:
        return len(self.summaries) - len(self.accuracies)

    def brief(self) -> str:
        """`96.1 % ± 0.4`, or with both ends where the interval is cut to 0-100 %."""
        return format_mean(self.accuracies, "test_accuracy", 1) if self.accuracies else "none"

    def described(self) -> str:
        """`96.1 % ± 0.4 (n=3)`, with how many diverged."""
        beside = f", {self.diverged} diverged" if self.diverged else ""
        return f"{self.brief()} (n={len(self.accuracies)}{beside})"


Found = dict[str, Measured]  # by the station's name


def won_back(found: Found, name: str = LEGW) -> float | None:
    """The share of the accuracy lost by a larger batch that a way of scaling gives back; None where none was lost."""
    return _share(*(found[station].mean for station in (BASELINE, UNSCALED, name)))


def shares_by_seed(found: Found, name: str = LEGW) -> list[float]:
    """The same for each seed by itself: how far the share can be trusted."""
    three = (found[station].by_seed for station in (BASELINE, UNSCALED, name))
    shares = (_share(*accuracies) for accuracies in zip(*three, strict=True))
    return [share for share in shares if share is not None]


def _share(small: float | None, large: float | None, scaled: float | None) -> float | None:
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
    """`LEGW wins back 91 % of the accuracy that was lost (by seed: 90, 91, 92 %).`"""
    share = won_back(found, name)
    plain_name = name.removeprefix("+ ")
    if share is None:
        return f"{plain_name}: nothing was lost, or nothing was learned, so there is nothing to win back."
    by_seed = ", ".join(f"{100 * one:.0f}" for one in shares_by_seed(found, name))
    if share < 0:
        return f"{plain_name} wins nothing back: it loses {-100 * share:.0f} % more (by seed: {by_seed} % won back)."
    return f"{plain_name} wins back {100 * share:.0f} % of the accuracy that was lost (by seed: {by_seed} %)."
