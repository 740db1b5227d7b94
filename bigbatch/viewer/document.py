"""One filter on the page: its columns, its present settings and overrides, and the log that keeps them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch import filters, parts
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.errors import Problem
from bigbatch.viewer.event_log import Event, EventLog
from bigbatch.viewer.images import Thumbnails
from bigbatch.viewer.overrides import KEEP, NO_OVERRIDE, Action, HistoryStep, Override, OverrideHistory
from bigbatch.viewer.points import MapPoints
from bigbatch.viewer.requests import RequestError, SampleNumbers, decode_samples, encode_samples
from bigbatch.viewer.settings import FilterSettings
from bigbatch.viewer.sources import NO_IMAGES, FilterSource

_OPTIONAL_COLUMNS = {"prediction": "<i4", "confidence": "<f4", "loss": "<f4"}


@dataclass(frozen=True)
class Snapshot:
    """Settings and overrides at one moment."""

    settings: FilterSettings
    override_values: NDArray[np.int8]
    overrides: list[Override]


class FilterDocument:
    """A filter that is viewed and changed. Changes are on disk before they are in memory; `revision` counts them."""

    def __init__(self, source: FilterSource, out: Path | None = None) -> None:
        self.saved, self.dataset = source.saved, source.dataset
        self.notes = list(source.notes)
        self._source_on_disk = _file_identity(source.saved.path)
        self.manifest = source.saved.require_manifest()
        self.path = source.saved.path
        self.export_folder = out or self.path.parent / f"{self.path.stem}.exports"
        self.exported_files: dict[str, Path] = {}
        self.classes: list[str] = list(self.manifest.dataset.classes)
        self.config = parts.configure("filters", self.manifest.filter)
        options = self.config.model_dump()
        if options["mode"] == "relative":  # the page sets radii
            options |= {"mode": "manual", "eps": self.manifest.info["eps"]}
        settings = FilterSettings.from_options(options, self.classes)
        self.points = MapPoints(self.saved, self.classes, settings.min_samples)
        self.thumbnails: Thumbnails | None = None
        if self.dataset is not None:
            try:
                self.thumbnails = Thumbnails(self.dataset)
            except Problem as problem:
                self.notes.append(f"{NO_IMAGES} {problem}")
        self._filter_hash = hash_json({"points": self.points.hash, "filter": self.manifest.filter})
        self.settings = self._decide_eps(settings)
        self.history = OverrideHistory(len(self), self.manifest.overrides)
        self.revision = 0
        self._filter_hash_in_log = ""
        self._lock = threading.Lock()
        self.log = EventLog(_log_path(self.path, out))
        try:
            self._replay_log()
        except BaseException:
            self.log.close()
            raise

    def __len__(self) -> int:
        return len(self.points)

    # -- reading

    def columns(self) -> list[str]:
        optional = [name for name in _OPTIONAL_COLUMNS if name in self.saved.arrays]
        return ["position", "label", "eps_star", "considered", "override", *optional]

    def column(self, name: str, min_samples: int) -> NDArray[Any]:
        """Return one row per sample, in the type that the page expects."""
        if name not in self.columns():
            raise RequestError(f"there is no column '{name}': there are {', '.join(self.columns())}", 404)
        match name:
            case "position":
                return self.points.positions
            case "label":
                return self.points.labels.astype("<u2")
            case "eps_star":
                return self.points.eps_star(min_samples)
            case "considered":
                return self.points.considered.astype("u1")
            case "override":
                return self.snapshot().override_values
        return self.saved.arrays[name].astype(_OPTIONAL_COLUMNS[name])

    def snapshot(self) -> Snapshot:
        """Return settings and overrides that belong together, even while they are changed."""
        with self._lock:
            overrides = [replace(override) for override in self.history.entries]
            return Snapshot(self.settings, self.history.values.copy(), overrides)

    def kept_mask(self, snapshot: Snapshot | None = None) -> NDArray[np.bool_]:
        """Return which samples are kept by the settings and then by the overrides."""
        snapshot = snapshot or self.snapshot()
        eps_star = self.points.eps_star(snapshot.settings.min_samples)
        by_filter = filters.mask_at(eps_star, self.points.labels, snapshot.settings.eps_by_class())
        values = snapshot.override_values
        return np.where(values == NO_OVERRIDE, by_filter, values == KEEP)

    def require_thumbnails(self) -> Thumbnails:
        """Return the thumbnails, or refuse with the reason why there are none."""
        if self.thumbnails is None:
            raise RequestError(next(note for note in self.notes if note.startswith(NO_IMAGES)), 404)
        return self.thumbnails

    def override_log(self) -> dict[str, object]:
        """Return all overrides for the page, undone ones too."""
        with self._lock:
            return {
                "revision": self.revision,
                "entries": [
                    {name: value for name, value in vars(override).items() if name != "samples"}
                    | {"count": len(override.samples)}
                    for override in self.history.entries
                ],
                "can_undo": self.history.find_next("undo") is not None,
                "can_redo": self.history.find_next("redo") is not None,
            }

    # -- changing

    def override(self, action: Action, reason: str, samples: SampleNumbers) -> int:
        """Keep, drop or reset samples; return the new revision."""
        fields = {"action": action, "reason": reason, **encode_samples(samples, len(self))}
        with self._lock:
            return self._record({"event": "override", **fields})

    def step_history(self, step: HistoryStep) -> int:
        """Undo the last override, or redo the one that was undone last; return the new revision."""
        with self._lock:
            self.history.require_next(step)
            return self._record({"event": step})

    def change_settings(self, settings: FilterSettings) -> int:
        """Set the settings of the filter; return the new revision."""
        settings.check(self.config, self.classes)
        decided = self._decide_eps(settings)
        with self._lock:
            return self._record({"event": "settings", "settings": decided.model_dump()})

    def check_source(self) -> None:
        """Refuse to go on where the file is not the one that was opened: decisions would belong to another map."""
        if _file_identity(self.path) != self._source_on_disk:
            raise RequestError(
                f"{self.path.name} was changed or removed while it was open: end 'bigbatch view' and start it again; "
                f"everything up to now is saved in {self.log.path.name}",
                409,
            )

    def close(self) -> None:
        self.log.close()

    def _decide_eps(self, settings: FilterSettings) -> FilterSettings:
        eps_star = self.points.eps_star(settings.min_samples)
        return settings.with_decided_eps(eps_star, self.points.labels, len(self.classes))

    # -- the log

    def _record(self, event: Event) -> int:
        if self._filter_hash_in_log != self._filter_hash:
            header = {"event": "opened", "source": self.path.name, "dataset": self.saved.dataset_hash}
            header["filter"] = self._filter_hash
            self.log.append(header)
            self._apply(header)
        event = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}
        self.log.append(event)
        self._apply(event)
        return self.revision

    def _apply(self, event: Event) -> None:
        match event["event"]:
            case "opened":
                if event["dataset"] != self.saved.dataset_hash:
                    raise Problem(
                        f"{self.log.path} belongs to another dataset (hash {event['dataset'][:10]}, that of "
                        f"{self.path.name} is {self.saved.dataset_hash[:10]}): move it away, or restore the old file"
                    )
                self._filter_hash_in_log = event["filter"]
                return
            case "override":
                samples = decode_samples(event.get("samples"), event.get("bits"), len(self))
                self.history.add(event["action"], event["reason"], samples, event["at"])
            case "undo" | "redo" as step:
                self.history.apply(step)
            case "settings":
                if self._filter_hash_in_log == self._filter_hash:  # an eps of another map has no meaning here
                    self.settings = FilterSettings(**event["settings"])
            case unknown:
                raise KeyError(unknown)
        self.revision += 1

    def _replay_log(self) -> None:
        for number, event in enumerate(self.log.read(), start=1):
            try:
                self._apply(event)
            except (KeyError, TypeError, ValueError, RequestError) as error:
                raise Problem(
                    f"line {number} of {self.log.path} is not a valid event ({error!r}): fix or remove it"
                ) from error
        if self.revision and self._filter_hash_in_log != self._filter_hash:
            self.notes.append(
                f"{self.path.name} was made again after {self.log.path.name} was written: "
                "overrides stay, eps and the other settings are those of the new file."
            )


def _file_identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _log_path(source: Path, out: Path | None) -> Path:
    """Return a path beside the source, or in `out` where the source's folder cannot be written to."""
    beside = source.with_name(f"{source.stem}.view.jsonl")
    if out is None or os.access(beside if beside.exists() else beside.parent, os.W_OK):
        return beside
    out.mkdir(parents=True, exist_ok=True)
    return out / beside.name
