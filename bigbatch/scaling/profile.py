"""What one rank computes in a step: a forward pass, the layers of a backward pass with their gradients, an update."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from bigbatch.errors import Problem

COLUMNS = ("layer", "backward_us", "gradient_bytes")


@dataclass(frozen=True)
class LayerShape:
    """A layer without times. FLOPs of the forward pass and bytes of activations read and written are per sample."""

    name: str
    gradient_bytes: tuple[int, ...]
    flops: float
    activation_bytes: float


@dataclass(frozen=True)
class Layer:
    """One layer of the backward pass. Its gradients, one per parameter tensor, are ready when it ends."""

    name: str
    backward_us: float
    gradient_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gradient:
    """A tensor to be summed over ranks, and the time from the start of the backward pass until it is ready."""

    layer: str
    bytes: int
    ready_us: float


@dataclass(frozen=True)
class Profile:
    """Layers in the order of the backward pass. All times are means over the steps of one rank."""

    model: str
    rank_batch: int
    forward_us: float
    layers: tuple[Layer, ...]
    update_us: float = 0.0
    source: str = ""
    statistics_bytes: int = 0  # BatchNorm's statistics, which are summed over ranks after the gradients

    @property
    def backward_us(self) -> float:
        return sum(layer.backward_us for layer in self.layers)

    @property
    def compute_us(self) -> float:
        return self.forward_us + self.backward_us + self.update_us

    @property
    def gradient_bytes(self) -> int:
        return sum(sum(layer.gradient_bytes) for layer in self.layers)

    def gradients(self) -> list[Gradient]:
        """Return the gradients in the order in which they become ready."""
        found, now_us = [], 0.0
        for layer in self.layers:
            now_us += layer.backward_us
            found += [Gradient(layer.name, size, now_us) for size in layer.gradient_bytes]
        return found

    def scale_times(self, factor: float) -> Profile:
        """Return the same work in `factor` times the time."""
        return replace(
            self,
            forward_us=self.forward_us * factor,
            layers=tuple(replace(layer, backward_us=layer.backward_us * factor) for layer in self.layers),
            update_us=self.update_us * factor,
        )

    def add_gradient_copies(self, gb_s: float | None) -> Profile:
        """Add the time to copy every gradient when it is ready; None: copies take no time."""
        if gb_s is None:
            return self
        layers = (
            replace(one, backward_us=one.backward_us + sum(one.gradient_bytes) / (gb_s * 1e3)) for one in self.layers
        )
        return replace(self, layers=tuple(layers))

    def at_batch(self, rank_batch: int) -> Profile:
        """Scale times to another batch per rank. This is too optimistic for batches that leave a device half idle."""
        return replace(self.scale_times(rank_batch / self.rank_batch), rank_batch=rank_batch)

    def at_throughput(self, samples_per_second: float, source: str) -> Profile:
        """Scale times to a measured throughput of one rank. The fractions of the layers stay the same."""
        scaled = self.scale_times(self.rank_batch / samples_per_second * 1e6 / self.compute_us)
        return replace(scaled, source=f"{self.source}, scaled to {samples_per_second:g} samples/s ({source})")


def read_csv(path: Path, rank_batch: int) -> Profile:
    """Read rows in the order of the backward pass: layer, backward_us, gradient_bytes (joined by '+', or empty).

    A row named 'forward' or 'update' gives the time of that phase. Without 'forward' it is half the backward pass.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read as a table of layers ({error}): check the path") from error
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise Problem(f"{path} is not a table of layers: use the columns {', '.join(COLUMNS)} and one row per layer")
    phases: dict[str, float] = {}
    layers = []
    for number, row in enumerate(rows, start=2):
        try:
            microseconds = float(row["backward_us"])
            sizes = tuple(int(size) for size in (row["gradient_bytes"] or "").split("+") if size.strip())
        except (TypeError, ValueError) as error:
            raise Problem(f"{path}, line {number}: {error}: write numbers, like 120.5 and 4096+256") from error
        if not 0 <= microseconds < float("inf") or any(size <= 0 for size in sizes):
            raise Problem(f"{path}, line {number}: times and sizes must be positive: fix {dict(row)}")
        if row["layer"] in ("forward", "update"):
            phases[row["layer"]] = microseconds
        else:
            layers.append(Layer(row["layer"], microseconds, sizes))
    backward_us = sum(layer.backward_us for layer in layers)
    if not backward_us or not any(layer.gradient_bytes for layer in layers):
        raise Problem(f"{path} has no times or no gradients: give each layer its backward_us and gradient_bytes")
    return Profile(
        model=path.stem,
        rank_batch=rank_batch,
        forward_us=phases.get("forward", backward_us / 2),
        layers=tuple(layers),
        update_us=phases.get("update", 0.0),
        source=f"given in {path.name}",
    )
