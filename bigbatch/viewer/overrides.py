"""The overrides that a person made, in order; they are undone and redone one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.viewer.requests import RequestError, SampleNumbers

Action = Literal["keep", "drop", "reset"]
HistoryStep = Literal["undo", "redo"]
NO_OVERRIDE, DROP, KEEP = -1, 0, 1
_VALUES = {"keep": KEEP, "drop": DROP, "reset": NO_OVERRIDE}
_ACTIONS: dict[bool | None, Action] = {True: "keep", False: "drop", None: "reset"}  # by `keep` in a filter's manifest


@dataclass
class Override:
    """One action on some samples. What is in the source file already cannot be undone, only overridden again."""

    id: int
    at: str
    action: Action
    reason: str
    samples: SampleNumbers
    undone: bool = False
    in_source: bool = False

    def manifest_entry(self) -> dict[str, object]:
        """Return the override as a filter's manifest has it."""
        keep = next(keep for keep, action in _ACTIONS.items() if action == self.action)
        entry = {"at": self.at, "samples": self.samples.tolist(), "keep": keep, "reason": self.reason}
        return entry | ({"undone": True} if self.undone else {})


class OverrideHistory:
    """All overrides, and in `values` what they mean for each sample."""

    def __init__(self, samples: int, in_source: Iterable[Mapping[str, Any]] = ()) -> None:
        self.entries: list[Override] = []
        self._redoable: list[Override] = []
        self.values: NDArray[np.int8] = np.full(samples, NO_OVERRIDE, np.int8)
        for entry in in_source:
            self.add(_ACTIONS[entry["keep"]], entry["reason"], np.asarray(entry["samples"], np.int64), entry["at"])
            self.entries[-1].in_source, self.entries[-1].undone = True, bool(entry.get("undone"))
        self._replay()

    def add(self, action: Action, reason: str, samples: SampleNumbers, at: str) -> None:
        self.entries.append(Override(len(self.entries), at, action, reason, samples))
        self._redoable.clear()
        self.values[samples] = _VALUES[action]

    def find_next(self, step: HistoryStep) -> Override | None:
        """Return the override that a step would undo or redo."""
        if step == "redo":
            return self._redoable[-1] if self._redoable else None
        return next((entry for entry in reversed(self.entries) if not entry.undone and not entry.in_source), None)

    def require_next(self, step: HistoryStep) -> Override:
        override = self.find_next(step)
        if override is None:
            before = "keep, drop or reset samples" if step == "undo" else "undo something"
            raise RequestError(f"there is nothing to {step}: {before} first", 409)
        return override

    def apply(self, step: HistoryStep) -> None:
        override = self.require_next(step)
        override.undone = step == "undo"
        if step == "undo":
            self._redoable.append(override)
        else:
            self._redoable.pop()
        self._replay()

    def _replay(self) -> None:
        self.values.fill(NO_OVERRIDE)
        for override in self.entries:
            if not override.undone:
                self.values[override.samples] = _VALUES[override.action]
