"""Recipes: complete trainings, ready to run. A part offers `run() -> Run`; `--set` changes any field of it.

A recipe after a paper states in `PAPER` what the paper reports for it; 'bigbatch report' compares runs with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.trust import trust_typed


class PaperNumber(NamedTuple):
    """A number that a paper reports for the unchanged recipe."""

    measure: str  # "test_accuracy" (of 1) or "test_perplexity"
    value: float
    source: str


def load_run(recipe: str, settings: Iterable[str] = ()) -> Run:
    """Return the run of a recipe's name, a `mypkg.mod:function` or a run.json, with settings applied."""
    if not recipe.endswith(".json"):
        trust_typed(recipe)
        run = parts.find("recipes", recipe).run()
        if not isinstance(run, Run):
            raise Problem(f"recipe '{recipe}' returned a {type(run).__name__}, not a Run: name a function that does")
        return run.with_settings(settings)
    try:
        about = json.loads(Path(recipe).read_text(encoding="utf-8"))
        fields = about.get("run", about) if isinstance(about, dict) else None
        if not isinstance(fields, dict):
            raise ValueError("it is not an object")
        return Run.from_fields(fields).with_settings(settings)
    except (OSError, ValueError, RecursionError) as error:
        raise Problem(f"{recipe} cannot be read as a run ({error}): give a run.json or a recipe's name") from error
