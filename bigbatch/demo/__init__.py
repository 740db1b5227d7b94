"""The first thing a person sees: what 32 times the batch costs on a small problem, and what wins it back."""

from __future__ import annotations

from bigbatch.demo.tour import show
from bigbatch.demo.tuning import tune

__all__ = ["show", "tune"]
