"""What a sweep runs, as one frozen value (sweep.json), and the points that it expands to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from bigbatch import batch_sizes, parts, settings
from bigbatch.artifacts.targets import Target
from bigbatch.engines import fit_run_to_ranks
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_value
from bigbatch.run import Run, fingerprint, split_scaling
from bigbatch.trust import trust_typed

Settings = Mapping[str, Any]  # field of a run -> value
_MOST_RUNS = 100_000
_NEAR_END = 0.05  # fraction of a range


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep and the settings that tell it from the others."""

    variant: str
    settings: Settings  # without the seed
    seed: int
    run: Run
    unscaled: Run | None = None  # the run that `scale_batch` was applied to

    @cached_property
    def hash(self) -> str:
        return self.run.hash

    @cached_property
    def hash_without_batch(self) -> str:
        """The fingerprint of everything but seed and batch: equal for the points of one curve over batches.

        A run that is scaled as a whole to another batch is on the curve of the one that was scaled.
        """
        fields = (self.unscaled or self.run).model_dump(mode="json")
        return fingerprint({name: value for name, value in fields.items() if name not in ("seed", "global_batch")})

    @property
    def folder_name(self) -> str:
        return f"{self.run.name}-{self.hash}"

    @property
    def label(self) -> str:
        return format_settings(self.variant, self.settings)

    @property
    def global_batch(self) -> int:
        """The largest one, where it changes during the training."""
        return batch_sizes.largest(self.run.global_batch)

    @property
    def lr(self) -> float:
        """`optimizer.lr`, before the schedule scales it."""
        lr: float = self.run.optimizer.lr  # type: ignore[attr-defined]
        return lr

    def with_run(self, run: Run, **chosen: Any) -> SweepPoint:
        return SweepPoint(self.variant, {**self.settings, **chosen}, self.seed, run)


class SearchRange(BaseModel):
    """The values that a search chooses from: numbers from low to high, or choices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> SearchRange:
        """`optimizer.lr=0.01..1:log`, `optimizer.momentum=0.8..0.99` or `optimizer=lars,adam`."""
        field, values = settings.split(text, example="optimizer.lr=0.01..1:log")
        if field == "seed":
            raise Problem("--search seed: a seed is not a setting to choose: leave it out")
        span, colon, scale = values.partition(":")
        low_text, dots, high_text = span.partition("..")
        if not dots or "..." in span:
            return cls(field=field, choices=settings.parse_values(values))
        low, high = settings.parse_value(low_text), settings.parse_value(high_text)
        if any(isinstance(end, bool) or not isinstance(end, int | float) for end in (low, high)) or not low < high:
            raise Problem(f"--search {text} does not go from a number to a larger one: write optimizer.lr=0.01..1")
        if colon and scale != "log":
            raise Problem(f"--search {text} ends in '{scale}': write ':log', or nothing")
        if colon and low <= 0:
            raise Problem(f"--search {text} has no logarithm at {low}: begin above 0")
        whole = isinstance(low, int) and isinstance(high, int)
        return cls(field=field, low=low, high=high, log=bool(colon), whole=whole)

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Both ends, or all choices: if a run accepts these, it accepts everything in between."""
        ends = (self.low or 0.0, self.high or 0.0)
        return self.choices or tuple(int(end) if self.whole else end for end in ends)

    def nearby_end(self, value: Any) -> str | None:
        """Return `lower` or `upper` if a value lies within 5 % of an end."""
        if self.choices or self.low is None or self.high is None:
            return None
        scale = math.log if self.log else float
        fraction = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return "lower" if fraction <= _NEAR_END else "upper" if fraction >= 1 - _NEAR_END else None


class SearchConfig(BaseModel):
    """A search by Optuna's TPE, judged on training samples that are held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ranges: tuple[SearchRange, ...]
    trials: PositiveInt
    held_out: float = Field(0.1, gt=0, lt=1)
    storage: str | None = None  # without its password; None: a journal file in the sweep's folder


class SweepChanges(TypedDict, total=False):
    """What a sweep changes in its run, as keyword arguments."""

    grids: Mapping[str, Iterable[Any]]
    variants: Mapping[str, Settings]
    seeds: int
    targets: Iterable[str]
    search: SearchConfig | None
    title: str
    command: Iterable[str]


class SweepConfig(BaseModel):
    """A base run and what is changed in it: named variants and grids, which multiply, and seeds; or a search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = ""
    run: dict[str, Any]
    variants: dict[str, dict[str, Any]] = {}
    grids: dict[str, tuple[Any, ...]] = {}
    seeds: PositiveInt = 1
    targets: tuple[str, ...] = ()  # like test_accuracy=0.98: what the samples to reach it are counted for
    search: SearchConfig | None = None
    command: tuple[str, ...] = ()

    @classmethod
    def build(cls, run: Run, **changes: Unpack[SweepChanges]) -> SweepConfig:
        """Build the configuration of a sweep in one process per run, or raise a Problem that names the wrong value."""
        fields = {"title": run.name, "run": fit_run_to_ranks(run).model_dump(mode="json")}
        try:
            config = cls(**(fields | {name: value for name, value in changes.items() if value not in (None, "")}))
        except ValidationError as error:
            raise Problem(parts.explain_validation_error(error, "a sweep", cls)) from error
        for target in config.targets:
            Target.parse(target)
        for field, values in config.grids.items():
            if not values:
                raise Problem(f"the grid of {field} has no values: give some")
        return config

    @classmethod
    def read(cls, path: Path) -> SweepConfig:
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise Problem(f"{path.parent} is not a sweep, it has no {path.name}: name the folder of one") from error
        except (OSError, ValueError, TypeError, RecursionError, ValidationError) as error:
            raise Problem(f"{path} is not readable as a sweep ({error}): restore it from a copy") from error

    def base_run(self) -> Run:
        return Run.from_fields(self.run)

    def points(self) -> list[SweepPoint]:
        """Return every run, one seed of all of them first. A wrong field or value raises a Problem."""
        count = self.seeds * len(self.variants or [""]) * math.prod(len(values) for values in self.grids.values())
        if count > _MOST_RUNS:
            raise Problem(f"this sweep has {count:,} runs, more than {_MOST_RUNS:,}: use fewer seeds or values")
        base = self.base_run()
        points = [
            SweepPoint(variant, grid, seed, run.with_settings([f"seed={seed}"]), unscaled)
            for seed in range(base.seed, base.seed + self.seeds)
            for variant, grid, run, unscaled in self._combine_settings(base)
        ]
        by_hash: dict[str, SweepPoint] = {}
        for point in points:
            other = by_hash.setdefault(point.hash, point)
            if other is not point:
                raise Problem(
                    f"'{point.label}' and '{other.label}' are the same run (seed {point.seed}): leave out one of them"
                )
        return points

    def _combine_settings(self, base: Run) -> Iterator[tuple[str, dict[str, Any], Run, Run]]:
        for variant, changes in (self.variants or {"": {}}).items():
            for values in product(*self.grids.values()):
                grid = dict(zip(self.grids, values, strict=True))
                assignments = as_assignments(changes | grid)
                try:
                    unscaled = base.with_settings(split_scaling(assignments)[0], typed=False)
                    yield variant, grid, base.with_settings(assignments, typed=False), unscaled
                except Problem as problem:
                    prefix = f"{format_settings(variant, grid)}: " if assignments else ""
                    raise Problem(f"{prefix}{problem}") from problem


def as_assignments(values: Settings) -> list[str]:
    """Return FIELD=VALUE for `Run.with_settings`."""
    return [f"{field}={json.dumps(value)}" for field, value in values.items()]


def format_settings(variant: str, values: Settings) -> str:
    """`LEGW, global_batch=512`: the variant and the settings of the grids."""
    grid = " ".join(f"{field}={format_value(value)}" for field, value in values.items())
    return ", ".join(part for part in (variant, grid) if part) or "unchanged"


def parse_grids(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Parse the `FIELD=VALUES` of each --grid, which the user typed."""
    grids: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        field, values = settings.split(text, example="global_batch=16,32,...,512")
        if field in grids:
            raise Problem(f"--grid {field} is given twice: put all its values into one")
        if field == "seed":
            raise Problem("--grid seed: results are averaged over seeds: use --seeds 4")
        try:
            grids[field] = settings.parse_values(values)
        except Problem as problem:
            raise Problem(f"--grid {field}: {problem}") from problem
    trust_typed(grids)
    return grids


def parse_ranges(texts: Iterable[str]) -> tuple[SearchRange, ...]:
    """Parse the `FIELD=RANGE` of each --search, which the user typed."""
    ranges = tuple(SearchRange.parse(text) for text in texts)
    if len({found.field for found in ranges}) < len(ranges):
        raise Problem("a field is searched twice: give one --search for each")
    trust_typed(ranges)
    return ranges


def read_variants(path: Path) -> dict[str, dict[str, Any]]:
    """Read a JSON file {"NAME": {"FIELD": VALUE, ...}, ...}."""
    form = '{"NAME": {"FIELD": VALUE}}'
    try:
        variants = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Problem(f"--variants {path} cannot be read ({error}): write {form} into it") from error
    if not isinstance(variants, dict) or not all(isinstance(changes, dict) for changes in variants.values()):
        raise Problem(f"--variants {path} does not have the form {form}: write it like that")
    if not variants or "" in variants:
        raise Problem(f"--variants {path} has no variants, or one without a name: name at least one")
    return variants
