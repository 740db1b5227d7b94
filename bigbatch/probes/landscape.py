"""Slices of the loss along filter-normalised random directions, 1-D and 2-D (Li et al. 2018), split over ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bigbatch import rng
from bigbatch.artifacts.metrics import parse_rows, read_lines
from bigbatch.datasets import sha256
from bigbatch.engines import Engine
from bigbatch.engines.local import Local
from bigbatch.errors import Problem
from bigbatch.probes.measurement.contract import ProbeConfig, ProbeState, Row
from bigbatch.probes.measurement.objective import DIRECTIONS, Loss, Objective, Vector, fixed_objective
from bigbatch.probes.measurement.read_only import Mode, preserve_model, preserve_tensors
from bigbatch.probes.measurement.record import Measurement, to_json


class Config(ProbeConfig):
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


def measure(state: ProbeState, config: Config) -> LandscapeMeasurement:
    if config.progress:
        raise Problem(
            f"probe 'landscape' can keep points in {config.progress} only where the weights do not change: "
            f"leave 'progress' out of a training"
        )
    return measure_at_rest(state, config)


def measure_at_rest(state: ProbeState, config: Config) -> LandscapeMeasurement:
    with preserve_model(state.model):
        return _measure_losses(fixed_objective(state, config.samples), config, state.run.seed, state.engine)


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
    tensors = [*objective.parameters, *objective.model.buffers(), *tree_leaves((objective.inputs, objective.targets))]
    weights = sha256(*(tensor.detach().cpu().reshape(-1) for tensor in tensors if isinstance(tensor, Tensor)))
    header = {**about, "points": points, "weights": weights}
    known = _read_known_points(config.progress, header, engine)
    open_points = [number for number in range(len(grid)) if number not in known]
    losses = torch.zeros(len(grid), dtype=torch.float64, device=engine.device)
    with (
        _append_points(config.progress, header, engine.rank) as add_point,
        preserve_tensors(objective.parameters) as origin,
    ):
        for number in open_points[engine.rank :: engine.world_size]:
            with torch.no_grad():
                for index, parameter in enumerate(objective.parameters):
                    parameter.copy_(origin[index])
                    for distance, direction in zip(grid[number], directions, strict=False):
                        parameter.add_(direction[index], alpha=distance)
            losses[number] = objective.value()
            add_point(number, float(losses[number]))
    found = engine.sum(losses).tolist()
    for number, value in known.items():
        found[number] = value
    if config.dimensions == 2:
        found = [found[row * points : (row + 1) * points] for row in range(points)]
    return LandscapeMeasurement(at=at, losses=found, reused=len(known), **about)


# -- finished points: one file per rank, one line per point after a line that says what they are points of


def _read_known_points(path: Path | None, header: Row, engine: Engine) -> dict[int, float]:
    """The points of all ranks so far. Rank 0 reads, all ranks get the points, or the problem: no rank waits."""
    known: dict[int, float] = {}
    problem = ""
    try:
        for file in sorted(path.parent.glob(f"{path.name}.rank*")) if path and engine.rank == 0 else ():
            rows = list(parse_rows(read_lines(file), file, json.loads))  # without a line that a kill cut short
            if rows and rows[0] != header:
                raise Problem(
                    f"{file} has points of another landscape (weights, samples or options differ): "
                    f"remove it, or give another file"
                )
            known |= {number: math.nan if loss is None else loss for number, loss in rows[1:]}
    except Problem as error:
        problem = str(error)
    if path:
        known, problem = engine.broadcast((known, problem))
    if problem:
        raise Problem(problem)
    return known


@contextmanager
def _append_points(path: Path | None, header: Row, rank: int) -> Iterator[Callable[[int, float], None]]:
    """Yield a function that adds a finished point to this rank's file."""
    if path is None:
        yield lambda number, loss: None
        return
    file = path.with_name(f"{path.name}.rank{rank}")
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(text[: text.rfind("\n") + 1] or json.dumps(header) + "\n", encoding="utf-8")
    except OSError as error:
        raise Problem(f"{file} could not be written ({error.strerror}): give another file") from error
    with file.open("a", encoding="utf-8") as output:

        def add_point(number: int, loss: float) -> None:
            output.write(json.dumps([number, to_json(loss)]) + "\n")
            output.flush()

        yield add_point
