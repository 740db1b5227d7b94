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
_KEEP_FIELD = {"keep": True, "drop": False, "reset": None}  # of a filter's manifest


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

    def summary(self) -> dict[str, object]:
        """Return the fields for the page, with the number of samples in place of the samples."""
        return {name: value for name, value in vars(self).items() if name != "samples"} | {"count": len(self.samples)}

    def manifest_entry(self) -> dict[str, object]:
        """Return the override as a filter's manifest has it."""
        entry = {"at": self.at, "samples": self.samples.tolist(), "keep": _KEEP_FIELD[self.action]}
        return entry | {"reason": self.reason} | ({"undone": True} if self.undone else {})


class OverrideHistory:
    """All overrides, and in `values` what they mean for each sample."""

    def __init__(self, samples: int, in_source: Iterable[Mapping[str, Any]] = ()) -> None:
        self.entries: list[Override] = []
        self._redoable: list[Override] = []
        self.values: NDArray[np.int8] = np.full(samples, NO_OVERRIDE, np.int8)
        for entry in in_source:
            action: Action = "reset" if entry["keep"] is None else "keep" if entry["keep"] else "drop"
            override = self.add(action, entry["reason"], np.asarray(entry["samples"], np.int64), entry["at"])
            override.in_source, override.undone = True, bool(entry.get("undone"))
        self._replay()

    def add(self, action: Action, reason: str, samples: SampleNumbers, at: str) -> Override:
        override = Override(len(self.entries), at, action, reason, samples)
        self.entries.append(override)
        self._redoable.clear()
        self.values[samples] = _VALUES[action]
        return override

    def can(self, step: HistoryStep) -> bool:
        """Whether there is an override to undo, or one that was undone last."""
        return bool(self._redoable) if step == "redo" else any(map(_is_undoable, self.entries))

    def check(self, step: HistoryStep) -> None:
        if not self.can(step):
            before = "keep, drop or reset samples" if step == "undo" else "undo something"
            raise RequestError(f"there is nothing to {step}: {before} first", 409)

    def apply(self, step: HistoryStep) -> None:
        self.check(step)
        if step == "undo":
            self._redoable.append(next(filter(_is_undoable, reversed(self.entries))))
            self._redoable[-1].undone = True
        else:
            self._redoable.pop().undone = False
        self._replay()

    def _replay(self) -> None:
        self.values.fill(NO_OVERRIDE)
        for override in self.entries:
            if not override.undone:
                self.values[override.samples] = _VALUES[override.action]


def _is_undoable(override: Override) -> bool:
    return not override.undone and not override.in_source
