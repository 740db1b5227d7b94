"""`bigbatch demo`."""

from __future__ import annotations

from pathlib import Path

from bigbatch.commands._options import DONE, Quiet, RunsDir


def command(*, runs_dir: RunsDir = Path("runs"), quiet: Quiet = False) -> int:
    """Train the embedded digits at a small and at a 32 times larger batch, and show both accuracies."""
    from bigbatch.demo import show

    show(runs_dir, quiet)
    return DONE
