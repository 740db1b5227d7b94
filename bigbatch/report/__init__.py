"""Reports: one self-contained page about runs and sweeps, whatever state they are in."""

from __future__ import annotations

from bigbatch.report.pages import compare_runs, report
from bigbatch.report.records import find_run_folders

__all__ = ["compare_runs", "find_run_folders", "report"]
