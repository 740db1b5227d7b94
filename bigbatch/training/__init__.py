"""The core: a run, trained. Nothing in it knows a command, a sweep or a page."""

from __future__ import annotations

from bigbatch.training.loop import train

__all__ = ["train"]
