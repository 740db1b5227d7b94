"""What the demo compares: a baseline, tuned at its small batch, and four ways to train at 32 times that batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigbatch import schedules
from bigbatch.recipes import legw_digits
from bigbatch.run import Run
from bigbatch.sweeps import RunResult, SeedGroup, SweepPoint, format_mean, group_by_setting
from bigbatch.sweeps.config import Settings

BATCH_FACTOR = 32
BASELINE, UNSCALED, LINEAR, LEGW, LEGW_LARS = (
    "baseline",
    f"{BATCH_FACTOR}x the batch",
    "+ linear scaling",
    "+ LEGW",
    "+ LEGW with LARS",
)
DESCRIPTIONS = {
    BASELINE: "small batch, tuned",
    UNSCALED: "nothing else changed",
    LINEAR: f"{BATCH_FACTOR} times the learning rate",
    LEGW: f"√{BATCH_FACTOR} times the learning rate, {BATCH_FACTOR} times the warm-up",
    LEGW_LARS: "the same, and a learning rate for each layer",
}


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


@dataclass(frozen=True)
class VariantResult:
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

    def format_accuracy(self) -> str:
        """`96.1 % ± 0.4`."""
        return format_mean(self.group.values, "test_accuracy", digits=1)

    def describe(self) -> str:
        """`96.1 % ± 0.4 (n=3)`, with the number of diverged runs."""
        return self.group.describe("test_accuracy", digits=1)


Comparison = Mapping[str, VariantResult]  # by variant


def compare_variants(points: Sequence[SweepPoint], results: Sequence[RunResult]) -> Comparison:
    runs = {point.variant: point.run for point in reversed(points)}  # the first seed is the last to be set
    return {
        group.variant: VariantResult(runs[group.variant], group, [r for r in results if r.variant == group.variant])
        for group in group_by_setting(results)
    }


def fraction_won_back(comparison: Comparison, variant: str) -> float | None:
    """Return the fraction of the accuracy lost by the larger batch that a variant regains, or None if none was lost."""
    return _fraction_of_loss(*(comparison[name].group.mean for name in (BASELINE, UNSCALED, variant)))


def fractions_by_seed(comparison: Comparison, variant: str) -> list[float]:
    """Return the same for each seed, which shows its uncertainty."""
    runs = zip(*(comparison[name].runs for name in (BASELINE, UNSCALED, variant)), strict=True)
    fractions = (_fraction_of_loss(*(result.value for result in alike)) for alike in runs)
    return [fraction for fraction in fractions if fraction is not None]


def _fraction_of_loss(small: float | None, large: float | None, scaled: float | None) -> float | None:
    if small is None or large is None or scaled is None or small <= large:
        return None
    return (scaled - large) / (small - large)


def describe_gap(comparison: Comparison) -> str:
    """Return the generalization gap in one sentence."""
    small, large = comparison[BASELINE], comparison[UNSCALED]
    return (
        f"{BATCH_FACTOR} times the batch with nothing else changed: {small.describe()} becomes {large.describe()}, "
        f"in {large.steps:,} steps instead of {small.steps:,}."
    )


def describe_gain(comparison: Comparison, variant: str) -> str:
    """`LEGW wins back 91 % of the accuracy that was lost (by seed: 90, 91, 92 %).`"""
    fraction = fraction_won_back(comparison, variant)
    name = variant.removeprefix("+ ")
    if fraction is None:
        return f"{name}: nothing was lost, or nothing was learned, so there is nothing to win back."
    by_seed = ", ".join(f"{100 * one:.0f}" for one in fractions_by_seed(comparison, variant))
    if fraction < 0:
        return f"{name} wins nothing back: it loses {-100 * fraction:.0f} % more (by seed: {by_seed} % won back)."
    return f"{name} wins back {100 * fraction:.0f} % of the accuracy that was lost (by seed: {by_seed} %)."


def list_conclusions(comparison: Comparison) -> list[str]:
    return [describe_gap(comparison), *(describe_gain(comparison, variant) for variant in (LINEAR, LEGW, LEGW_LARS))]
