"""A demonstration of sweeps, advice and filters: what 32 times the batch costs on digits, and what wins it back."""

from __future__ import annotations

from bigbatch.demo.run import DemoOptions, DemoReport, list_choices, run_demo, tune

__all__ = ["DemoOptions", "DemoReport", "list_choices", "run_demo", "tune"]
