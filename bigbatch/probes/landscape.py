"""Slices of the loss along filter-normalised random directions, 1-D and 2-D (Li et al. 2018), shared among ranks."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts, probes, rng
from bigbatch.datasets import sha256
from bigbatch.engines import Engine
from bigbatch.engines.local import Local
from bigbatch.errors import Problem
from bigbatch.probes._contract import plain
from bigbatch.probes._data import fixed_objective
from bigbatch.probes._objective import DIRECTIONS, Loss, Objective, Vector
from bigbatch.probes._untouched import Mode, moved, untouched


class Config(probes.Config):
    every_steps: int = Field(5000, gt=0)
    samples: int = Field(256, gt=0)
    dimensions: Literal[1, 2] = 1
    points: int = Field(11, ge=2)  # along each direction, from −radius to radius
    radius: float = Field(1.0, gt=0)  # 1: as far as each filter is long
    progress: Path | None = None  # a file that finished points are kept in, where the weights stand still


def measure(state: probes.State, config: Config) -> dict[str, Any]:
    if config.progress:
        raise Problem(
            f"probe 'landscape' keeps points in {config.progress} only where the weights stand still: "
            f"leave 'progress' out of a training"
        )
    return at_rest(state, config)


def at_rest(state: probes.State, config: Config) -> dict[str, Any]:
    with untouched(state.model):
        return _slices(fixed_objective(state, config.samples), config, state.run.seed, state.engine)


def landscape(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    dimensions: int = 1,
    points: int = 21,
    radius: float = 1.0,
    seed: int = 0,
    mode: Mode = None,
    micro_batch: int | None = None,
    progress: Path | None = None,
    engine: Engine | None = None,
) -> dict[str, Any]:
    """`losses` at w + α·d₁ (+ β·d₂) over the grid `at` × `at`; None where the loss is not finite.

    Directions are random, each filter of them as long as the weights' own, biases and norms left out (zero).
    `progress` names a file that every finished point is added to, one beside it for each rank: a slice that was
    interrupted goes on from there, on any number of ranks, as long as weights, samples and options are the same.
    With an `engine` of several ranks each evaluates its share of the points, and all get all of them.
    """
    options = {"dimensions": dimensions, "points": points, "radius": radius, "progress": progress}
    config = parts.configure("probes", {"name": "landscape", **options})
    assert isinstance(config, Config)
    with untouched(model, mode):
        objective = Objective(model, loss, inputs, targets, micro_batch=micro_batch, seed=seed)
        return _slices(objective, config, seed, engine or Local())


def filter_normalised(weights: Vector, *key: int) -> Vector:
    """A random direction whose filters (rows of the first dimension) have the lengths of the weights' filters."""
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


def _slices(objective: Objective, config: Config, seed: int, engine: Engine) -> dict[str, Any]:
    points = config.points
    # the middle is 0, not nearly
    at = [config.radius * (2 * number - points + 1) / (points - 1) for number in range(points)]
    directions = [filter_normalised(objective.parameters, seed, number) for number in range(config.dimensions)]
    grid = [(a, b) for a in at for b in (at if config.dimensions == 2 else [0.0])]
    about = {"dimensions": config.dimensions, "radius": config.radius, "seed": seed, **objective.about()}
    key = {**about, "points": points, "weights": _hash(objective)}
    notes = Notes(config.progress, engine, key) if config.progress else None
    known = _known(notes, engine) if notes else {}
    open_points = [number for number in range(len(grid)) if number not in known]
    losses = torch.zeros(len(grid), dtype=torch.float64, device=engine.device)
    with notes or nullcontext(), moved(objective.parameters) as origin:
        for number in open_points[engine.rank :: engine.world_size]:
            _move(objective.parameters, origin, directions, grid[number])
            losses[number] = objective.value()
            if notes:
                notes.add(number, float(losses[number]))
    found = engine.sum(losses).tolist()
    for number, value in known.items():
        found[number] = value
    if config.dimensions == 2:
        found = [found[row * points : (row + 1) * points] for row in range(points)]
    return {"at": at, "losses": plain(found), "reused": len(known), **about}


def _known(notes: Notes, engine: Engine) -> dict[int, float]:
    """Rank 0 reads, all ranks learn what it found, or what it met: none waits for another."""
    found: dict[int, float] | str = {}
    if engine.rank == 0:
        try:
            found = notes.read()
        except Problem as problem:
            found = str(problem)
    found = engine.broadcast(found)
    if isinstance(found, str):
        raise Problem(found)
    return found


@torch.no_grad()
def _move(parameters: Vector, origin: Vector, directions: list[Vector], place: tuple[float, float]) -> None:
    for number, parameter in enumerate(parameters):
        parameter.copy_(origin[number])
        for distance, direction in zip(place, directions, strict=False):
            parameter.add_(direction[number], alpha=distance)


def _hash(objective: Objective) -> str:
    tensors = [*objective.parameters, *objective.model.buffers(), *_given(objective)]
    return sha256(*(tensor.detach().cpu().reshape(-1) for tensor in tensors))


def _given(objective: Objective) -> list[Tensor]:
    """The samples' tensors, whatever they are held in."""
    found: list[Tensor] = []
    held: list[Any] = [objective.inputs, objective.targets]
    while held:
        value = held.pop(0)
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            held += value
        elif isinstance(value, dict):
            held += value.values()
    return found


class Notes:
    """Points that are done: one file a rank, a line a point after a line that says what they are points of."""

    def __init__(self, path: Path, engine: Engine, about: dict[str, Any]) -> None:
        self.path, self.engine, self.about = path, engine, about
        self._file: IO[str] | None = None

    def read(self) -> dict[int, float]:
        """What any rank has written so far. A kill may have cut a last line short: that point is done again."""
        known: dict[int, float] = {}
        for file in sorted(self.path.parent.glob(f"{self.path.name}.rank*")):
            lines = file.read_text(encoding="utf-8").splitlines()
            if not lines or _json(lines[0]) is None:
                continue
            if _json(lines[0]) != self.about:
                raise Problem(
                    f"{file} has points of another landscape (weights, samples or options differ): "
                    f"remove it, or give another file"
                )
            for line in lines[1:]:
                point = _json(line)
                if point is not None:
                    known[point[0]] = math.nan if point[1] is None else point[1]
        return known

    def add(self, number: int, loss: float) -> None:
        assert self._file is not None
        self._file.write(json.dumps([number, plain(loss)]) + "\n")
        self._file.flush()

    def __enter__(self) -> Notes:
        file = self.path.with_name(f"{self.path.name}.rank{self.engine.rank}")
        try:
            _cut_to_whole_lines(file)
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


def _cut_to_whole_lines(file: Path) -> None:
    if file.exists():
        text = file.read_text(encoding="utf-8")
        file.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
