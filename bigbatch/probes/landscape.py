"""Slices of the loss along filter-normalised random directions, 1-D and 2-D (Li et al. 2018), split over ranks."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import nn

from bigbatch import rng
from bigbatch.datasets import sha256
from bigbatch.engines import Engine
from bigbatch.engines.local import Local
from bigbatch.errors import Problem
from bigbatch.probes.measurement import contract
from bigbatch.probes.measurement.contract import ProbeState, Row
from bigbatch.probes.measurement.objective import DIRECTIONS, Loss, Objective, Vector
from bigbatch.probes.measurement.probed_model import fixed_objective
from bigbatch.probes.measurement.read_only import Mode, preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import Measurement, to_json
from bigbatch.probes.measurement.samples import list_tensors


class Config(contract.Config):
    every_steps: PositiveInt = 5000
    samples: PositiveInt = 256
    dimensions: Literal[1, 2] = 1
    points: int = Field(11, ge=2)  # along each direction, from −radius to radius
    radius: PositiveFloat = 1.0  # in units of each filter's norm
    progress: Path | None = None  # a file for finished points, where the weights do not change


@dataclass(frozen=True)
class LandscapeMeasurement(Measurement):
    at: list[float]
    losses: list[Any]  # one per point of `at`, or a row of them; None where the loss is not finite
    reused: int  # points that were read from `progress`
    dimensions: int
    radius: float
    seed: int
    samples: int


def measure(state: ProbeState, config: Config) -> Row:
    if config.progress:
        raise Problem(
            f"probe 'landscape' can keep points in {config.progress} only where the weights do not change: "
            f"leave 'progress' out of a training"
        )
    return measure_at_rest(state, config)


def measure_at_rest(state: ProbeState, config: Config) -> Row:
    with preserve_model(state.model):
        objective = fixed_objective(state, config.samples)
        row: Row = to_json(_measure_losses(objective, config, state.run.seed, state.engine))
        return row


def landscape(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    seed: int = 0,
    mode: Mode = None,
    micro_batch: int | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> LandscapeMeasurement:
    """`losses` at w + α·d₁ (+ β·d₂) over the grid `at` × `at`; None where the loss is not finite.

    Directions are random, each filter with the norm of the weights' own filter, biases and norms left out (zero).
    `options` are those of `Config`: dimensions=1, points=21, radius=1.0, progress=None. `progress` is a path; each rank
    adds its finished points to a file there, so that an interrupted slice continues, on any number of ranks, as long as
    weights, samples and options are the same. With an `engine` of several ranks each evaluates a part of the points,
    and all ranks get all of them.
    """
    config = Config.from_options(**{"points": 21, **options})
    with preserve_model(model, mode):
        objective = Objective(model, loss, inputs, targets, micro_batch=micro_batch, seed=seed)
        return _measure_losses(objective, config, seed, engine or Local())


def random_direction(weights: Vector, *key: int) -> Vector:
    """A random direction whose filters (rows of the first dimension) have the norms of the weights' filters."""
    generator = torch.Generator().manual_seed(int(rng.bits(*key, DIRECTIONS)[0] >> 1))
    direction = []
    for weight in weights:
        random = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if weight.ndim <= 1:
            direction.append(torch.zeros_like(weight))
            continue
        lengths = weight.detach().double().cpu().flatten(1).norm(dim=1)
        scale = lengths / random.flatten(1).norm(dim=1).clamp_min(1e-30)
        direction.append((random * scale.view(-1, *[1] * (weight.ndim - 1))).to(weight))
    return direction


def _measure_losses(objective: Objective, config: Config, seed: int, engine: Engine) -> LandscapeMeasurement:
    points = config.points
    # the middle is exactly 0
    at = [config.radius * (2 * number - points + 1) / (points - 1) for number in range(points)]
    directions = [random_direction(objective.parameters, seed, number) for number in range(config.dimensions)]
    grid = [(a, b) for a in at for b in (at if config.dimensions == 2 else [0.0])]
    about = {"dimensions": config.dimensions, "radius": config.radius, "seed": seed, **objective.conditions()}
    key = {**about, "points": points, "weights": _hash_tensors(objective)}
    file = PointsFile(config.progress, engine, key) if config.progress else None
    known = _read_known_points(file, engine) if file else {}
    open_points = [number for number in range(len(grid)) if number not in known]
    losses = torch.zeros(len(grid), dtype=torch.float64, device=engine.device)
    with file or nullcontext(), preserve_tensors(objective.parameters) as origin:
        for number in open_points[engine.rank :: engine.world_size]:
            _move_along(objective.parameters, origin, directions, grid[number])
            losses[number] = objective.value()
            if file:
                file.add(number, float(losses[number]))
    found = engine.sum(losses).tolist()
    for number, value in known.items():
        found[number] = value
    if config.dimensions == 2:
        found = [found[row * points : (row + 1) * points] for row in range(points)]
    return LandscapeMeasurement(at=at, losses=found, reused=len(known), **about)


def _read_known_points(file: PointsFile, engine: Engine) -> dict[int, float]:
    """Rank 0 reads, all ranks get the points, or the problem: no rank waits for another."""
    found: dict[int, float] | str = {}
    if engine.rank == 0:
        try:
            found = file.read()
        except Problem as problem:
            found = str(problem)
    found = engine.broadcast(found)
    if isinstance(found, str):
        raise Problem(found)
    return found


@torch.no_grad()
def _move_along(parameters: Vector, origin: Vector, directions: list[Vector], place: tuple[float, float]) -> None:
    for number, parameter in enumerate(parameters):
        parameter.copy_(origin[number])
        for distance, direction in zip(place, directions, strict=False):
            parameter.add_(direction[number], alpha=distance)


def _hash_tensors(objective: Objective) -> str:
    samples = list_tensors(objective.inputs, objective.targets)
    tensors = [*objective.parameters, *objective.model.buffers(), *samples]
    return sha256(*(tensor.detach().cpu().reshape(-1) for tensor in tensors))


class PointsFile:
    """Finished points: one file per rank, one line per point after a line that says what they are points of."""

    def __init__(self, path: Path, engine: Engine, about: dict[str, Any]) -> None:
        self.path, self.engine, self.about = path, engine, about
        self._file: IO[str] | None = None

    def read(self) -> dict[int, float]:
        """The points of all ranks so far. A kill may have cut a last line short: that point is measured again."""
        known: dict[int, float] = {}
        for file in sorted(self.path.parent.glob(f"{self.path.name}.rank*")):
            lines = file.read_text(encoding="utf-8").splitlines()
            if not lines or _parse_line(lines[0]) is None:
                continue
            if _parse_line(lines[0]) != self.about:
                raise Problem(
                    f"{file} has points of another landscape (weights, samples or options differ): "
                    f"remove it, or give another file"
                )
            for line in lines[1:]:
                point = _parse_line(line)
                if point is not None:
                    known[point[0]] = math.nan if point[1] is None else point[1]
        return known

    def add(self, number: int, loss: float) -> None:
        assert self._file is not None
        self._file.write(json.dumps([number, to_json(loss)]) + "\n")
        self._file.flush()

    def __enter__(self) -> PointsFile:
        file = self.path.with_name(f"{self.path.name}.rank{self.engine.rank}")
        try:
            _cut_incomplete_line(file)
            self._file = file.open("a", encoding="utf-8")
            if self._file.tell() == 0:
                self._file.write(json.dumps(self.about) + "\n")
                self._file.flush()
        except OSError as error:
            raise Problem(f"{file} could not be written ({error.strerror}): give another file") from error
        return self

    def __exit__(self, *error: object) -> None:
        assert self._file is not None
        self._file.close()


def _cut_incomplete_line(file: Path) -> None:
    if file.exists():
        text = file.read_text(encoding="utf-8")
        file.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
