"""One filter under a person's eyes: its columns, the settings and overrides of now, and the log that keeps them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters, parts
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.errors import Problem
from bigbatch.viewer import chosen, decide
from bigbatch.viewer.decide import Settings
from bigbatch.viewer.history import KEEP, NONE, Action, Entry, History
from bigbatch.viewer.log import Event, Log
from bigbatch.viewer.pictures import Atlas, of_dataset
from bigbatch.viewer.points import Points
from bigbatch.viewer.refused import Refused
from bigbatch.viewer.sources import NO_IMAGES, Opened

_OPTIONAL_COLUMNS = {"prediction": "<i4", "confidence": "<f4", "loss": "<f4"}


@dataclass(frozen=True)
class Now:
    """What a person has decided, at one moment."""

    settings: Settings
    overrides: NDArray[np.int8]
    entries: list[Entry]


class Document:
    """Changes are on disk before they are in memory; `revision` counts them."""

    def __init__(self, opened: Opened, out: Path | None = None) -> None:
        self.saved, self.dataset = opened.saved, opened.dataset
        self.notes = list(opened.notes)
        self.manifest = opened.saved.manifest
        self.path = opened.saved.path
        self.export_folder = out or self.path.parent / f"{self.path.stem}.exports"
        self.exported: dict[str, Path] = {}
        self.classes: list[str] = list(self.manifest["dataset"]["classes"])
        self.config = parts.configure("filters", self.manifest["filter"])
        as_made = decide.of_config(self.config, self.classes)
        self.points = Points(self.saved, self.classes, as_made.min_samples)
        self.atlas = self._atlas()
        self._filter_hash = hash_json({"points": self.points.hash, "filter": self.manifest["filter"]})
        self.settings = self._filled(as_made)
        self.history = History(len(self), self.manifest["overrides"])
        self.revision = 0
        self._filter_in_log = ""
        self._changing = threading.Lock()
        self.log = Log(_log_path(self.path, out))
        try:
            self._replay()
        except BaseException:
            self.log.close()
            raise

    def __len__(self) -> int:
        return len(self.points)

    # -- what there is to see

    def columns(self) -> list[str]:
        optional = [name for name in _OPTIONAL_COLUMNS if name in self.saved.arrays]
        return ["position", "label", "eps_star", "considered", "override", *optional]

    def column(self, name: str, min_samples: int | None = None) -> NDArray[Any]:
        """One row a sample, in the type that the page expects."""
        if name not in self.columns():
            raise Refused(f"there is no column '{name}': there are {', '.join(self.columns())}", 404)
        if name in _OPTIONAL_COLUMNS:
            return self.saved.arrays[name].astype(_OPTIONAL_COLUMNS[name])
        if name == "eps_star":
            return self.points.eps_star(self.settings.min_samples if min_samples is None else min_samples)
        if name == "override":
            return self.now().overrides
        if name == "position":
            return self.points.positions
        return self.points.labels.astype("<u2") if name == "label" else self.points.considered.astype("u1")

    def now(self) -> Now:
        """Settings and overrides that belong together, whatever is changed meanwhile."""
        with self._changing:
            return Now(self.settings, self.history.column.copy(), [replace(entry) for entry in self.history.entries])

    def mask(self, now: Now | None = None) -> NDArray[np.bool_]:
        """Kept, by the settings and then by the overrides."""
        now = now or self.now()
        eps_star = self.points.eps_star(now.settings.min_samples)
        verdict = filters.mask_at(eps_star, self.points.labels, now.settings.by_number())
        return np.where(now.overrides == NONE, verdict, now.overrides == KEEP)

    def pictured(self) -> Atlas:
        """The atlas, or why there is none."""
        if self.atlas is None:
            raise Refused(next(note for note in self.notes if note.startswith(NO_IMAGES)), 404)
        return self.atlas

    def _atlas(self) -> Atlas | None:
        """None, and a note, where there are no images to see."""
        if self.dataset is None:
            return None
        pictures = of_dataset(self.dataset)
        if pictures is None:
            self.notes.append(f"{NO_IMAGES} samples of this dataset have none.")
            return None
        try:
            return Atlas(pictures, len(self))
        except Problem as problem:
            self.notes.append(f"{NO_IMAGES} {problem}")
            return None

    # -- what a person does

    def override(self, action: Action, reason: str, fields: dict[str, Any]) -> tuple[Entry, int]:
        samples = chosen.from_fields(fields, len(self))
        with self._changing:
            event = {"event": "override", "action": action, "reason": reason, **chosen.to_fields(samples, len(self))}
            revision = self._record(event)
            return self.history.entries[-1], revision

    def undo(self) -> int:
        with self._changing:
            self.history.undoable()
            return self._record({"event": "undo"})

    def redo(self) -> int:
        with self._changing:
            self.history.redoable()
            return self._record({"event": "redo"})

    def set_settings(self, settings: Settings) -> int:
        decide.check(settings, self.config, self.classes)
        new = self._filled(settings)
        with self._changing:
            return self._record({"event": "settings", "settings": new.model_dump()})

    def log_of_overrides(self) -> dict[str, Any]:
        """For the page: all entries, the undone ones too."""
        with self._changing:
            return {
                "revision": self.revision,
                "entries": [entry.brief() for entry in self.history.entries],
                "can_undo": _possible(self.history.undoable),
                "can_redo": _possible(self.history.redoable),
            }

    def close(self) -> None:
        self.log.close()

    def _filled(self, settings: Settings) -> Settings:
        return decide.filled(settings, self.points.eps_star(settings.min_samples), self.points.labels, self.classes)

    # -- the log

    def _record(self, event: Event) -> int:
        if self._filter_in_log != self._filter_hash:
            about = {"source": self.path.name, "dataset": self.saved.dataset_hash, "filter": self._filter_hash}
            header = {"event": "opened", **about}
            self.log.append(header)
            self._apply(header)
        event = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
        self.log.append(event)
        self._apply(event)
        return self.revision

    def _apply(self, event: Event) -> None:
        if event["event"] == "opened":
            self._refuse_other_dataset(event["dataset"])
            self._filter_in_log = event["filter"]
            return
        if event["event"] == "override":
            samples = chosen.from_fields(event, len(self))
            self.history.add(event["action"], event["reason"], samples, event["at"])
        elif event["event"] == "undo":
            self.history.undo()
        elif event["event"] == "redo":
            self.history.redo()
        elif event["event"] == "settings":
            if self._filter_in_log == self._filter_hash:  # an eps means nothing on another map
                self.settings = Settings(**event["settings"])
        else:
            raise KeyError(event["event"])
        self.revision += 1

    def _replay(self) -> None:
        for number, event in enumerate(self.log.read(), start=1):
            try:
                self._apply(event)
            except (KeyError, TypeError, ValueError, Refused) as error:
                raise Problem(
                    f"line {number} of {self.log.path} makes no sense ({error!r}): mend or remove it"
                ) from error
        if self.revision and self._filter_in_log != self._filter_hash:
            self.notes.append(
                f"{self.path.name} was made again since {self.log.path.name} was written: "
                "overrides hold, eps and the other settings are those of the new file."
            )

    def _refuse_other_dataset(self, dataset_hash: str) -> None:
        if dataset_hash != self.saved.dataset_hash:
            raise Problem(
                f"{self.log.path} belongs to another dataset (hash {dataset_hash[:10]}, that of {self.path.name} is "
                f"{self.saved.dataset_hash[:10]}): move it away, or bring the old file back"
            )


def _possible(look: Callable[[], object]) -> bool:
    try:
        look()
    except Refused:
        return False
    return True


def _log_path(source: Path, out: Path | None) -> Path:
    """Beside the source, so that it is found again; below --out only where that cannot be written to."""
    beside = source.with_name(f"{source.stem}.view.jsonl")
    if out is None or os.access(beside if beside.exists() else beside.parent, os.W_OK):
        return beside
    out.mkdir(parents=True, exist_ok=True)
    return out / beside.name
