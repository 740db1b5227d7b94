"""The trainings of the demo: one baseline, tuned at its small batch, and four ways to train at 32 times that batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from bigbatch import schedules
from bigbatch.recipes import legw_digits
from bigbatch.run import Run

TIMES = 32
SEEDS = (0, 1, 2)
BASELINE, UNSCALED, LINEAR, LEGW, LEGW_LARS = (
    "baseline",
    f"{TIMES}x the batch",
    "+ linear scaling",
    "+ LEGW",
    "+ LEGW with LARS",
)


class Station(NamedTuple):
    name: str
    says: str  # what is done to the batch, the learning rate and the warm-up
    run: Run

    def with_seed(self, seed: int) -> Run:
        return self.run.with_settings([f"seed={seed}"])

    @property
    def global_batch(self) -> int:
        return int(self.run.global_batch.global_batch)  # type: ignore[attr-defined]

    @property
    def peak_lr(self) -> float:
        """The largest learning rate of the schedule (LARS multiplies it for each layer)."""
        assert self.run.epochs is not None
        return max(point.lr for point in schedules.plan(self.run, self.run.epochs))


def stations(epochs: float | None = None) -> list[Station]:
    """All five. `epochs` shortens them, for tests."""
    shorter = [f"epochs={epochs}"] if epochs else []
    large = [*shorter, f"global_batch={TIMES * legw_digits.BASELINE_BATCH}"]
    baseline, lars = legw_digits.run(), legw_digits.lars()
    warmup = {"kind": "gradual", "epochs": legw_digits.WARMUP_EPOCHS}  # the baseline's own, in epochs
    unscaled = {"name": "composed", "warmup": warmup}
    linear = unscaled | {"scaling": "linear", "baseline_batch": legw_digits.BASELINE_BATCH}
    return [
        Station(BASELINE, "small batch, tuned", baseline.with_settings(shorter)),
        Station(UNSCALED, "nothing else changed", _with_schedule(baseline, unscaled).with_settings(large)),
        Station(LINEAR, f"{TIMES} times the learning rate", _with_schedule(baseline, linear).with_settings(large)),
        Station(LEGW, f"√{TIMES} times the learning rate, {TIMES} times the warm-up", baseline.with_settings(large)),
        Station(LEGW_LARS, "the same, and a learning rate for each layer", lars.with_settings(large)),
    ]


def _with_schedule(run: Run, schedule: dict[str, Any]) -> Run:
    return Run(**(run.model_dump(mode="json") | {"schedule": schedule}))
