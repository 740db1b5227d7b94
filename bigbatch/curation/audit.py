"""Which filter finds known noise: recall and precision of each at equal sizes, with its CPU time and memory.

Noise is planted several times, each time in other samples. Filters that use a network's features get them from one
that has not seen the noise (if it is given), from one that was trained on the noisy labels, and out of fold.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bigbatch import filters, parts, settings
from bigbatch.artifacts import atomic
from bigbatch.curation.rounds import CurationRequest
from bigbatch.datasets import Dataset, planted
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache
from bigbatch.filters.pipeline.features import compute_features
from bigbatch.filters.pipeline.scoring import DropOptions, drop_largest
from bigbatch.filters.pipeline.source import OUT_OF_FOLD
from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_csv
from bigbatch.output.page import Page
from bigbatch.output.progress import log_progress, show_progress
from bigbatch.sweeps.intervals import confidence_interval

ALL = "all"  # kinds of noise together
_NOT_RANKING = ("full", "kept", "on_map")  # filters without scores of their own
_OWN = "its own"  # the networks of filters that train some
_FEATURES = "(features)"  # what the features cost, before any filter

T = TypeVar("T")


@dataclass(frozen=True)
class AuditRequest(CurationRequest):
    """Which noise to plant in which dataset, and which filters look for it."""

    dataset: str
    out: Path  # a folder for the table, the charts and a page
    network: str | None = None  # the clean extractor: the folder of a run, a recipe, weights, or mypkg.mod:Class
    settings: Sequence[str] = ()  # NAME=VALUE for all filters that know it, or after dataset., clean. or FILTER.
    kinds: dict[str, float] = field(default_factory=dict)  # the fraction of each kind of noise; default: planted's
    plants: int = 3
    samples: int | None = None  # that many of the dataset, at random for each plant
    filters: Sequence[str] = ()  # default: all that rank samples
    drops: Sequence[float] = (0.02, 0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        if self.plants < 1:
            raise Problem(f"--plants must be at least 1, got {self.plants}: use 1 or more")
        for drop in self.drops:
            if not 0 < drop < 1:
                raise Problem(f"--drops must be between 0 and 1, got {drop:g}: use fractions like 0.1")


class Cost(NamedTuple):
    """What a filter takes, its features excluded."""

    cpu_seconds: float
    peak_mb: float  # memory beyond what was in use before


@dataclass(frozen=True)
class AuditRow:
    """What one filter found of one kind of noise in one plant, and its `Cost`."""

    plant: int
    extractor: str
    filter: str
    kind: str
    drop: float
    recall: float  # of the planted samples
    precision: float  # of the dropped samples
    cpu_seconds: float
    peak_mb: float


def audit_filters(request: AuditRequest) -> list[AuditRow]:
    """Run every filter on every plant; write audit.csv, recall_*.png, .svg and .csv, and index.html into `out`."""
    atomic.check_writable(request.out)
    options = _read_settings(request)
    names = request.filters or [name for name in parts.names("filters") if name not in _NOT_RANKING]
    rows: list[AuditRow] = []
    with show_progress(not request.quiet):
        if request.network:
            options["clean"]["network"] = request.train_if_recipe(request.network)
        for number in range(request.plants):
            noise = options["planted"] | {"seed": number, "samples": request.samples}
            config = parts.configure("datasets", {"name": "planted", "of": options["dataset"], **noise})
            assert isinstance(config, planted.Config)
            dataset, kind_of = planted.plant(config, request.data_dir)
            for extractor, name, score, cost in _score_samples(dataset, names, options):
                log_progress(f"plant {number}, {extractor}, {name}: {cost.cpu_seconds:.1f} CPU s")
                if score is None:
                    rows.append(AuditRow(number, extractor, name, ALL, 0, 0, 0, *cost))
                    continue
                for drop in request.drops:
                    dropped = ~drop_largest(score, dataset, DropOptions(name=name, drop=drop)).numpy()
                    for kind, is_noise in _noise_by_kind(kind_of, list(config.kinds)).items():
                        found = int((dropped & is_noise).sum())
                        recall, precision = (found / max(1, int(each.sum())) for each in (is_noise, dropped))
                        rows.append(AuditRow(number, extractor, name, kind, drop, recall, precision, *cost))
    if not rows:
        raise Problem(f"none of the filters {', '.join(names)} could be audited: name others")
    _write_files(request, rows)
    return rows


def _read_settings(request: AuditRequest) -> dict[str, dict[str, Any]]:
    """Return options of the dataset, the planted noise, the clean extractor, all filters (`shared`), and each."""
    options: dict[str, dict[str, Any]] = {"dataset": {"name": request.dataset}, "clean": {}, "shared": {}}
    options["planted"] = {"kinds": request.kinds} if request.kinds else {}
    for assignment in request.settings:
        name, value = settings.parse(assignment, example="epochs=5, network.perplexity=10 or dataset.augment=false")
        head, dot, _ = name.partition(".")
        own = dot and head in ("dataset", "clean", *parts.names("filters"))
        settings.assign(options, name if own else f"shared.{name}", value)
    return options


def _noise_by_kind(kind_of: NDArray[np.int64], kinds: Sequence[str]) -> dict[str, NDArray[np.bool_]]:
    return {ALL: kind_of != planted.CLEAN} | {kind: kind_of == number for number, kind in enumerate(kinds)}


def _score_samples(
    dataset: Dataset, names: Sequence[str], options: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, str, Tensor | None, Cost]]:
    """Yield extractor, filter, its scores (None for the features alone) and its cost."""
    extractors = {"clean": options["clean"]} if options["clean"] else {}
    extractors |= {"noisy": {"network": OUT_OF_FOLD, "folds": 1}, "out of fold": {"network": OUT_OF_FOLD}, _OWN: {}}
    for extractor, source in extractors.items():
        by_features = extractor != _OWN
        chosen = [n for n in names if ("network" in parts.find("filters", n).Config.model_fields) == by_features]
        with tempfile.TemporaryDirectory() as empty, cache.use_folder(Path(empty)):
            if by_features and chosen:
                config = _configure("loss", options["shared"] | source)
                yield extractor, _FEATURES, None, _measure_cost(partial(compute_features, config, dataset))[1]
            for name in chosen:
                try:
                    config = _configure(name, options["shared"] | source | options.get(name, {}))
                    kept, cost = _measure_cost(partial(filters.keep, dataset, config))
                except Problem as problem:
                    log_progress(f"{extractor}, {name} is left out: {problem}")
                    continue
                yield extractor, name, kept.score, cost


def _configure(name: str, options: dict[str, Any]) -> Any:
    known = parts.find("filters", name).Config.model_fields
    return parts.configure("filters", {"name": name} | {key: options[key] for key in options if key in known})


def _measure_cost(compute: Callable[[], T]) -> tuple[T, Cost]:
    """Return the result, and CPU seconds of all threads and the growth of memory at its peak (0 if not on Linux)."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def megabytes(name: str) -> float:
        lines = status.read_text().splitlines() if status.exists() else []
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)

    if clear.exists():
        clear.write_text("5")  # the peak begins again
    before, started = megabytes("VmRSS"), time.process_time()
    result = compute()
    return result, Cost(time.process_time() - started, max(0.0, megabytes("VmHWM") - before))


def summarise_audit(rows: Sequence[AuditRow], drop: float) -> tuple[list[str], list[list[str]]]:
    """Return columns and lines of a table at one size: recall, of all noise and of each kind, and precision in %."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    columns = ["extractor", "filter", "recall %", "precision %", *(k for k in kinds if k != ALL), "CPU s", "MB"]
    lines = []
    for extractor, name in dict.fromkeys((row.extractor, row.filter) for row in rows):
        here = [row for row in rows if (row.extractor, row.filter) == (extractor, name)]
        costs = [f"{np.mean([getattr(row, cost) for row in here]):,.1f}" for cost in ("cpu_seconds", "peak_mb")]
        if name == _FEATURES:
            lines.append([extractor, name, *[""] * (len(columns) - 4), *costs])
            continue
        at = {kind: [row for row in here if row.kind == kind and row.drop == drop] for kind in kinds}
        overall = [_format_percent([getattr(row, measure) for row in at[ALL]]) for measure in ("recall", "precision")]
        each = [f"{100 * np.mean([row.recall for row in at[kind]]):.1f}" for kind in kinds if kind != ALL]
        lines.append([extractor, name, *overall, *each, *costs])
    return columns, lines


def _format_percent(values: Sequence[float]) -> str:
    mean, low, high = confidence_interval(values)
    return f"{100 * mean:.1f}" + (f" ± {50 * (high - low):.1f}" if low is not None and high is not None else "")


def _write_files(request: AuditRequest, rows: Sequence[AuditRow]) -> None:
    atomic.write_text(request.out / "audit.csv", format_csv([asdict(row) for row in rows]))
    judged = [row for row in rows if row.filter != _FEATURES]
    kinds = ", ".join(dict.fromkeys(row.kind for row in judged if row.kind != ALL))
    scale = f"{request.samples or 'all'} samples of {request.dataset}, {request.plants} plants of {kinds}"
    charts = []
    for extractor in dict.fromkeys(row.extractor for row in judged):
        chart = Chart(f"Planted noise that is found: {extractor}", "dropped, % of each class", "recall, %", scale)
        for name in dict.fromkeys(row.filter for row in judged if row.extractor == extractor):
            means = []
            for drop in request.drops:
                which = (extractor, name, ALL, drop)
                means.append([r.recall for r in judged if (r.extractor, r.filter, r.kind, r.drop) == which])
            intervals = [confidence_interval(values, (0, 1)) for values in means]
            low, high = ([v and 100 * v for v in ends] for ends in list(zip(*intervals, strict=True))[1:])
            drops = [100 * drop for drop in request.drops]
            chart.line(name, drops, [100 * i.mean for i in intervals], band=Band(low, high, request.plants))
        chart.save(request.out / f"recall_{extractor.replace(' ', '_')}")
        charts.append((chart, f"Features: {extractor}."))
    page = Page(f"Which filter finds noise in {request.dataset}", scale)
    for drop in request.drops:
        page.heading(f"{100 * drop:g} % of each class dropped")
        page.table(*summarise_audit(rows, drop))
    page.text("± is the 95 % interval over plants. Costs of a filter do not include those of its features.")
    page.charts(charts)
    page.write(request.out / "index.html")
