"""The first thing a person sees: what a 32 times larger batch costs on a small problem."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from bigbatch.recipes import digits
from bigbatch.run import Run
from bigbatch.training import train

_TIMES = 32


def runs() -> dict[str, Run]:
    """The recipe as it is, and with nothing changed but the batch."""
    small = digits.run()
    batch = small.global_batch.global_batch  # type: ignore[attr-defined]
    return {"small batch": small, f"{_TIMES}x the batch": small.with_settings([f"global_batch={_TIMES * batch}"])}


def show(runs_dir: Path, quiet: bool) -> None:
    table = Table("", "global batch", "test accuracy", "steps", "seconds", title="digits, one seed, nothing retuned")
    for label, run in runs().items():
        summary = train(run, runs_dir=runs_dir, quiet=quiet)
        table.add_row(
            label,
            str(run.global_batch.global_batch),  # type: ignore[attr-defined]
            f"{100 * summary['test_accuracy']:.1f} %",
            str(summary["steps"]),
            f"{summary['seconds']:.1f}",
        )
    Console().print(table)
