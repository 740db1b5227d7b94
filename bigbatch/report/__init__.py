"""Reports: one self-contained page about runs and sweeps, whatever state they are in."""

from __future__ import annotations

from bigbatch.report.comparison import compare
from bigbatch.report.pages import report
from bigbatch.report.records import folders

__all__ = ["compare", "folders", "report"]
