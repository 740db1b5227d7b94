"""The contract of a scaling rule: `rescale(run, k, config) -> list[Change]`, a pure function."""

from __future__ import annotations

from bigbatch.run import Run
from bigbatch.testing.common import CheckedPart


def check_scaled_runs_are_runs(part: CheckedPart) -> None:
    """From the smallest batch to one that is far too large, with every option that may follow the batch."""
    for global_batch in (1, 16, 4096):
        scaled = _run().at_batch(global_batch, part.configure())
        assert scaled.global_batch.global_batch == global_batch  # type: ignore[attr-defined]
        assert scaled.epochs == 3, "the epochs changed"


def check_changes_are_repeatable_and_name_fields(part: CheckedPart) -> None:
    changes = _run().changes_at_batch(64, part.configure())
    assert changes == _run().changes_at_batch(64, part.configure())
    for change in changes:
        assert change.why, f"{change.field} changes without a reason"
        assert _run().at_batch(64, part.configure()) != _run(), "a change has no effect"


def check_the_same_batch_changes_nothing(part: CheckedPart) -> None:
    assert _run().at_batch(16, part.configure()) == _run()


def _run() -> Run:
    return Run(
        dataset="digits",
        model="cnn",
        global_batch=16,
        optimizer={"name": "adam", "weight_decay": 0.1},
        schedule={"name": "composed", "warmup": {"kind": "gradual", "epochs": 0.01}},
        epochs=3,
    )
