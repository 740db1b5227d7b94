"""One filter under a person's eyes: its columns, the settings and overrides of now, and the log that keeps them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters, parts
from bigbatch.errors import Problem
from bigbatch.filters import _cache
from bigbatch.filters._library import library
from bigbatch.viewer import chosen, decide
from bigbatch.viewer.decide import Floats, Settings
from bigbatch.viewer.history import KEEP, NONE, Action, Entry, History
from bigbatch.viewer.log import Event, Log
from bigbatch.viewer.pictures import Atlas, of_dataset
from bigbatch.viewer.refused import Refused
from bigbatch.viewer.sources import Opened

_MOST_MIN_SAMPLES = 50
_NO_IMAGES = "There are no images:"
_COLUMNS_IN_MEMORY = 4  # of eps*, for as many values of min_samples


class Document:
    """Changes are on disk before they are in memory; `revision` counts them."""

    def __init__(self, opened: Opened, out: Path | None = None) -> None:
        self.saved, self.dataset = opened.saved, opened.dataset
        self.notes = list(opened.notes)
        self.manifest = opened.saved.manifest
        self.path = opened.saved.path
        self.classes: list[str] = list(self.manifest["dataset"]["classes"])
        self.labels: NDArray[np.int64] = self.saved.arrays["label"].astype(np.int64, copy=False)
        self.positions: NDArray[np.float32] = np.ascontiguousarray(self.saved.arrays["map"], np.float32)
        self.points: NDArray[Any] = self.saved.arrays.get("points", self.positions)  # what eps* is computed on
        self.looked_at: NDArray[np.bool_] = ~np.isnan(self.points[:, 0])
        self.config = parts.configure("filters", self.manifest["filter"])
        counts = np.bincount(self.labels[self.looked_at])
        self.most_min_samples = int(min(_MOST_MIN_SAMPLES, counts[counts > 0].min()))
        self._changing = threading.Lock()
        self._computing = threading.Lock()
        self._eps_stars: OrderedDict[int, Floats] = OrderedDict()
        self._first_settings = decide.of_config(self.config, self.classes)
        self._remember(self._first_settings.min_samples, self.saved.score.numpy().astype(np.float64, copy=False))
        self.settings = self._filled(self._first_settings)
        self.history = History(len(self), self.manifest["overrides"])
        self.revision = 0
        self.export_folder = out or self.path.parent / f"{self.path.stem}.exports"
        self.exported: dict[str, Path] = {}
        self.log = Log(_log_path(self.path, out))
        try:
            self._replay()
        except BaseException:
            self.log.close()
            raise

    def __len__(self) -> int:
        return len(self.labels)

    # -- what there is to see

    def columns(self) -> list[str]:
        optional = [name for name in ("prediction", "confidence", "loss") if name in self.saved.arrays]
        return ["position", "label", "eps_star", "looked_at", "override", *optional]

    def column(self, name: str, min_samples: int | None = None) -> NDArray[Any]:
        """One row a sample, in the type that the page expects."""
        if name == "eps_star":
            return self.eps_star(self.settings.min_samples if min_samples is None else min_samples)
        if name == "override":
            return self.history.column.copy()
        plain = {
            "position": (self.positions, "<f4"),
            "label": (self.labels, "<u2"),
            "looked_at": (self.looked_at, "u1"),
        }
        types = {"prediction": "<i4", "confidence": "<f4", "loss": "<f4"}
        if name in plain:
            values, kind = plain[name]
        elif name in self.columns():
            values, kind = self.saved.arrays[name], types[name]
        else:
            raise Refused(f"there is no column '{name}': there are {', '.join(self.columns())}", 404)
        return np.ascontiguousarray(values, kind)

    def eps_star(self, min_samples: int) -> Floats:
        """Infinite where a sample was not looked at."""
        self._check_min_samples(min_samples)
        with self._computing:
            found = self._eps_stars.get(min_samples)
            if found is None:
                found = decide.eps_star(self.points, self.labels, min_samples)
            return self._remember(min_samples, found)

    def mask(self) -> NDArray[np.bool_]:
        """Kept, by the settings of now and the overrides of now."""
        verdict = self.filter_mask()
        overrides = self.history.column
        return np.where(overrides == NONE, verdict, overrides == KEEP)

    def filter_mask(self) -> NDArray[np.bool_]:
        """Kept, by the settings of now alone."""
        settings = self.settings
        return filters.mask_at(self.eps_star(settings.min_samples), self.labels, settings.by_number())

    def clusters(self, min_samples: int, eps: Sequence[float | None]) -> NDArray[np.int32]:
        """Numbered within each class, -1 for noise."""
        self._check_min_samples(min_samples)
        if len(eps) != len(self.classes):
            raise Refused(f"got {len(eps)} eps for {len(self.classes)} classes: give one for each")
        radii = {index: radius for index, radius in enumerate(eps) if radius is not None}
        return filters.cluster_labels(self.points, self.labels, radii, min_samples).astype(np.int32)

    def neighbours(self, sample: int, count: int) -> list[dict[str, Any]]:
        """The nearest other samples on the map, of any class."""
        self.check_sample(sample)
        if not self.looked_at[sample]:
            return []
        tree, samples = self._tree
        distances, near = tree.query(self.positions[sample], k=np.arange(1, min(count + 1, len(samples)) + 1))
        found = [(int(samples[row]), float(distance)) for row, distance in zip(near, distances, strict=True)]
        others = [(other, distance) for other, distance in found if other != sample][:count]
        return [{"sample": other, "distance": distance} for other, distance in others]

    def check_sample(self, sample: int) -> None:
        if not 0 <= sample < len(self):
            raise Refused(f"there is no sample {sample}: they are numbered 0 to {len(self) - 1}", 404)

    @cached_property
    def atlas(self) -> Atlas | None:
        """None, and a note, where there are no images to see."""
        if self.dataset is None:
            return None
        pictures = of_dataset(self.dataset)
        if pictures is None:
            self.notes.append(f"{_NO_IMAGES} samples of this dataset are no images.")
            return None
        try:
            return Atlas(pictures, len(self))
        except Problem as problem:
            self.notes.append(f"{_NO_IMAGES} {problem}")
            return None

    def pictured(self) -> Atlas:
        """The atlas, or why there is none."""
        if self.atlas is None:
            raise Refused(next(note for note in self.notes if note.startswith(_NO_IMAGES)), 404)
        return self.atlas

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

    def log_of_overrides(self) -> dict[str, Any]:
        """For the page: all entries, the undone ones too."""
        with self._changing:
            return {
                "revision": self.revision,
                "entries": [entry.brief() for entry in self.history.entries],
                "can_undo": _possible(self.history.undoable),
                "can_redo": _possible(self.history.redoable),
            }

    def set_settings(self, settings: Settings) -> int:
        self._check_min_samples(settings.min_samples)
        decide.check(settings, self.config, self.classes)
        new = self._filled(settings)
        with self._changing:
            return self._record({"event": "settings", "settings": new.model_dump()})

    def close(self) -> None:
        self.log.close()

    # -- the log

    def _record(self, event: Event) -> int:
        event = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
        if self.revision == 0:
            self.log.append(self._header())
        self.log.append(event)
        self._apply(event)
        return self.revision

    def _apply(self, event: Event) -> None:
        if event["event"] == "override":
            samples = chosen.from_fields(event, len(self))
            self.history.add(event["action"], event["reason"], samples, event["at"])
        elif event["event"] == "undo":
            self.history.undo()
        elif event["event"] == "redo":
            self.history.redo()
        elif event["event"] == "settings":
            self.settings = Settings(**event["settings"])
        else:
            raise KeyError(event["event"])
        self.revision += 1

    def _header(self) -> Event:
        return {"event": "opened", "source": self.path.name, "dataset": self.saved.dataset_hash, "map": self._map_hash}

    def _replay(self) -> None:
        """What the log says, as far as it is about this very file."""
        header, *events = self.log.read() or [self._header()]
        if header.get("dataset") != self.saved.dataset_hash:
            raise Problem(
                f"{self.log.path} belongs to another dataset (hash {str(header.get('dataset'))[:10]}, that of "
                f"{self.path.name} is {self.saved.dataset_hash[:10]}): move it away, or bring the old file back"
            )
        other_map = header.get("map") != self._map_hash
        for number, event in enumerate(events, start=2):
            try:
                self._apply(event)
            except (KeyError, TypeError, ValueError, Problem) as error:
                raise Problem(
                    f"line {number} of {self.log.path} makes no sense ({error}): mend or remove it"
                ) from error
        if other_map:
            self.settings = self._filled(self._first_settings)
            self.notes.append(
                f"{self.path.name} was made again since {self.log.path.name} was begun: "
                "overrides hold, eps and the other settings are those of the new file."
            )

    # -- eps*

    def _filled(self, settings: Settings) -> Settings:
        return decide.filled(settings, self.eps_star(settings.min_samples), self.labels, self.classes)

    def _remember(self, min_samples: int, found: Floats) -> Floats:
        self._eps_stars[min_samples] = found
        self._eps_stars.move_to_end(min_samples)
        while len(self._eps_stars) > _COLUMNS_IN_MEMORY:
            self._eps_stars.popitem(last=False)
        return found

    def _check_min_samples(self, min_samples: int) -> None:
        if not 1 <= min_samples <= self.most_min_samples:
            raise Refused(f"min_samples {min_samples} is not in 1 to {self.most_min_samples}: choose one there")

    @cached_property
    def _map_hash(self) -> str:
        return _cache.hash_of_array(self.positions)

    @cached_property
    def _tree(self) -> tuple[Any, NDArray[np.int64]]:
        samples = np.flatnonzero(self.looked_at)
        tree_class = library("scipy.spatial", "the search of neighbours").cKDTree
        return tree_class(self.positions[samples], balanced_tree=False, compact_nodes=False), samples


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
