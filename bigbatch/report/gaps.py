"""The two gaps of a large batch: whether its training loss is higher (optimisation) or only its test loss is.

Test loss = training loss + (test loss − training loss), so a difference in test loss between two batches is the sum of
the differences of both terms: the optimisation gap and the generalisation gap. The training loss is the mean over the
last epoch, while it was trained on.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bigbatch.output.page import Page
from bigbatch.report.records import RunGroup
from bigbatch.sweeps import confidence_interval

_OPEN_FRACTION = 0.1  # of the rise in test loss that a gap must explain to be called open
_COLUMNS = ("setting", "global batch", "training loss", "test loss", "result", "compared with", "gap")


@dataclass(frozen=True)
class Losses:
    """What runs of one setting and batch reached, as means over seeds."""

    group: RunGroup
    global_batch: int
    train_loss: float
    test_loss: float

    @property
    def optimizer(self) -> object:
        optimizer = self.group.records[0].run.get("optimizer")
        return optimizer.get("name") if isinstance(optimizer, dict) else None


def add_gaps(page: Page, groups: Sequence[RunGroup]) -> None:
    """Add losses and results of small and large batches side by side, and which of the two gaps is open."""
    found = [losses for group in groups if (losses := read_losses(group))]
    batches = {losses.global_batch for losses in found}
    if len(batches) < 2 or len({_problem(losses.group) for losses in found}) > 1:
        return
    small = [losses for losses in found if losses.global_batch == min(batches)]
    page.heading("Small batch against large")
    page.text(
        "Each batch is compared with the smallest of the same optimizer, or with the best of the smallest. "
        "Optimisation gap: the training loss is higher. Generalisation gap: the test loss rises more than that."
    )
    rows = []
    for losses in found:
        others = [other for other in small if other.optimizer == losses.optimizer] or small
        other = min(others, key=lambda other: other.test_loss)
        compared = losses.global_batch > other.global_batch
        rows.append(
            [
                losses.group.label,
                losses.global_batch,
                losses.train_loss,
                losses.test_loss,
                losses.group.format_result(),
                other.group.label if compared else "",
                describe_gap(other, losses) if compared else "",
            ]
        )
    page.table(_COLUMNS, rows)


def read_losses(group: RunGroup) -> Losses | None:
    """Return the means of a group's finished runs; None without any, or with a batch that changes."""
    batch = group.records[0].run.get("global_batch")
    pairs = [
        (record.summary.get("train_loss"), record.summary.get("test_loss"))
        for record in group.records
        if record.state == "done"
    ]
    known = [(train, test) for train, test in pairs if train is not None and test is not None]
    if not known or not isinstance(batch, int):
        return None
    train_loss, test_loss = (statistics.fmean(values) for values in zip(*known, strict=True))
    return Losses(group, batch, train_loss, test_loss)


def describe_gap(small: Losses, large: Losses) -> str:
    """Say which gap is open at the large batch."""
    if not _is_worse(small.group, large.group):
        return "none: the result is not worse"
    optimisation = large.train_loss - small.train_loss
    generalisation = large.test_loss - small.test_loss - optimisation
    risen = max(optimisation, 0.0) + max(generalisation, 0.0)
    terms = {"optimisation": optimisation, "generalisation": generalisation}
    is_open = [f"{name} (+{gap:.3g})" for name, gap in terms.items() if gap > _OPEN_FRACTION * risen]
    return " and ".join(is_open) or "cannot tell: the result is worse, and no loss is higher"


def _is_worse(small: RunGroup, large: RunGroup) -> bool:
    """Whether the large batch's mean is outside the interval of the small one's, or worse where there is none."""
    sign = 1 if small.measure == "test_accuracy" else -1
    mean, low, _ = confidence_interval([sign * value for value in small.values])
    return sign * statistics.fmean(large.values) < (mean if low is None else low)


def _problem(group: RunGroup) -> str:
    """Dataset and model: losses of different ones are not compared."""
    run = group.records[0].run
    return f"{run.get('dataset')} {run.get('model')}"
