"""What a sweep is asked for, as one frozen value (sweep.json), and the points that it stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from bigbatch import batch_sizes
from bigbatch.errors import Problem
from bigbatch.run import Run, fingerprint
from bigbatch.sweeps.ranges import Search


@dataclass(frozen=True)
class Point:
    """One run of a sweep, and what makes it differ from the others."""

    variant: str
    settings: Mapping[str, Any]  # field -> value, without the seed
    seed: int
    run: Run

    @cached_property
    def hash(self) -> str:
        return self.run.hash

    @cached_property
    def all_else(self) -> str:
        """The fingerprint of everything but seed and batch."""
        fields = self.run.model_dump(mode="json")
        return fingerprint({name: value for name, value in fields.items() if name not in ("seed", "global_batch")})

    @property
    def folder_name(self) -> str:
        return f"{self.run.name}-{self.hash}"

    @property
    def label(self) -> str:
        """`LEGW, global_batch=512`: the variant and what the grids set."""
        return label(self.variant, self.settings)

    @property
    def global_batch(self) -> int:
        """The largest, where it changes during the training."""
        return batch_sizes.largest(self.run.global_batch)

    @property
    def lr(self) -> float:
        """`optimizer.lr`; what a schedule makes of it is another number."""
        return self.run.optimizer.lr  # type: ignore[attr-defined]


class Asked(BaseModel):
    """A base run, and what is changed in it: named variants and grids, which multiply, and seeds; or a search."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = ""
    run: dict[str, Any]
    variants: dict[str, dict[str, Any]] = {}
    grids: dict[str, tuple[Any, ...]] = {}
    seeds: PositiveInt = 1
    search: Search | None = None
    command: tuple[str, ...] = ()

    def base(self) -> Run:
        return Run(**self.run)

    def points(self) -> list[Point]:
        """Every run, one seed of all of them first. A wrong field or value is a Problem here, before anything runs."""
        base = self.base()
        points = [
            Point(variant, grid, base.seed + offset, run.with_settings([f"seed={base.seed + offset}"]))
            for offset in range(self.seeds)
            for variant, grid, run in self._settings(base)
        ]
        labels: dict[str, Point] = {}
        for point in points:
            other = labels.setdefault(point.hash, point)
            if other is not point:
                raise Problem(
                    f"'{point.label}' and '{other.label}' are the same run (seed {point.seed}): leave out one of them"
                )
        return points

    def _settings(self, base: Run) -> Iterator[tuple[str, dict[str, Any], Run]]:
        for variant, changes in (self.variants or {"": {}}).items():
            for values in product(*self.grids.values()):
                grid = dict(zip(self.grids, values, strict=True))
                settings = [f"{field}={json.dumps(value)}" for field, value in (changes | grid).items()]
                try:
                    yield variant, grid, base.with_settings(settings)
                except Problem as problem:
                    raise Problem(f"{label(variant, grid)}: {problem}" if settings else str(problem)) from problem


def label(variant: str, settings: Mapping[str, Any]) -> str:
    grid = " ".join(f"{field}={brief(value)}" for field, value in settings.items())
    return ", ".join(part for part in (variant, grid) if part) or "as it is"


def brief(value: Any) -> str:
    """A value within a label or a table: numbers and names as they are, anything else as JSON."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def read_variants(path: Path) -> dict[str, dict[str, Any]]:
    """A JSON file {"NAME": {"FIELD": VALUE, ...}, ...}."""
    try:
        variants = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Problem(
            f'--variants {path} cannot be read ({error}): write {{"NAME": {{"FIELD": VALUE}}}} into it'
        ) from error
    if not isinstance(variants, dict) or not all(isinstance(changes, dict) for changes in variants.values()):
        raise Problem(f'--variants {path} has another form than {{"NAME": {{"FIELD": VALUE}}}}: write it like that')
    if not variants or "" in variants:
        raise Problem(f"--variants {path} has no variants, or one without a name: name at least one")
    return variants


def from_json(path: Path) -> Asked:
    try:
        return Asked(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise Problem(f"{path.parent} is no sweep, as it has no {path.name}: name the folder of one") from error
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise Problem(f"{path} is not readable as a sweep ({error}): restore it from a copy") from error
