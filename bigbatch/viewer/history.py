"""What a person decided over the filter, in the order it was decided; undone and redone one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bigbatch.viewer.chosen import Samples
from bigbatch.viewer.refused import Refused

Action = Literal["keep", "drop", "reset"]
NONE, DROP, KEEP = -1, 0, 1
_VALUES = {"keep": KEEP, "drop": DROP, "reset": NONE}


@dataclass
class Entry:
    """One decision. What stood in the source file before the viewer cannot be undone, only decided otherwise."""

    id: int
    at: str
    action: Action
    reason: str
    samples: Samples
    undone: bool = False
    in_source: bool = False

    def brief(self) -> dict[str, Any]:
        """For the page: how many samples, not which."""
        fields = {"id": self.id, "at": self.at, "action": self.action, "count": len(self.samples)}
        return fields | {"reason": self.reason, "undone": self.undone, "in_source": self.in_source}


class History:
    """Entries and the override of each sample that they come to."""

    def __init__(self, samples: int, in_source: Iterable[dict[str, Any]] = ()) -> None:
        self.entries: list[Entry] = []
        self._redoable: list[Entry] = []
        self.column: NDArray[np.int8] = np.full(samples, NONE, np.int8)
        for override in in_source:
            self._add_from_source(override)

    def _add_from_source(self, override: dict[str, Any]) -> None:
        action: Action = "reset" if override["keep"] is None else "keep" if override["keep"] else "drop"
        samples = np.asarray(override["samples"], np.int64)
        entry = Entry(len(self.entries), override["at"], action, override["reason"], samples, in_source=True)
        entry.undone = bool(override.get("undone"))
        self.entries.append(entry)
        if not entry.undone:
            self.column[samples] = _VALUES[action]

    def add(self, action: Action, reason: str, samples: Samples, at: str) -> Entry:
        entry = Entry(len(self.entries), at, action, reason, samples)
        self.entries.append(entry)
        self._redoable.clear()
        self.column[samples] = _VALUES[action]
        return entry

    def undoable(self) -> Entry:
        """The last decision that stands; refused where there is none."""
        entry = next((entry for entry in reversed(self.entries) if not entry.undone and not entry.in_source), None)
        if entry is None:
            raise Refused("there is nothing to undo: nothing was kept, dropped or reset here", 409)
        return entry

    def redoable(self) -> Entry:
        """The decision that was undone last; refused where there is none, or another one was made since."""
        if not self._redoable:
            raise Refused("there is nothing to redo: nothing was undone last", 409)
        return self._redoable[-1]

    def undo(self) -> None:
        entry = self.undoable()
        entry.undone = True
        self._redoable.append(entry)
        self._replay()

    def redo(self) -> None:
        self.redoable().undone = False
        self._redoable.pop()
        self._replay()

    def _replay(self) -> None:
        self.column.fill(NONE)
        for entry in (entry for entry in self.entries if not entry.undone):
            self.column[entry.samples] = _VALUES[entry.action]
