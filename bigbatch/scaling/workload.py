"""What one rank computes for the model that a user names: a part, a published network or a table of layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.errors import Problem, did_you_mean
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.networks import NETWORKS
from bigbatch.scaling.profile import LayerShape, Profile, read_csv
from bigbatch.settings import parse_value

IMAGENET_SHAPE = (3, 224, 224)
ProfileAtBatch = Callable[[int], Profile]


@dataclass(frozen=True)
class Workload:
    """A model with its options and the shape of its samples."""

    model: str
    options: Mapping[str, Any]
    sample_shape: tuple[int, ...]
    classes: int

    @property
    def label(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.options.items())])

    def layer_shapes(self) -> list[LayerShape]:
        """Return the layers in the order of the forward pass."""
        if self.model not in NETWORKS:
            from bigbatch.scaling.shapes import find_layer_shapes

            return find_layer_shapes(self.model, self.options, self.sample_shape, self.classes)
        if self.options:
            option = next(iter(self.options))
            raise Problem(f"model '{self.model}' is a fixed table and has no option '{option}': leave it out")
        return NETWORKS[self.model]()

    def profiles(self, machine: Machine, rank_batch: int, samples_per_second: float | None = None) -> ProfileAtBatch:
        """Return a function from the batch per rank to the profile of a step.

        Times come from a table of layers (a .csv, given for `rank_batch`), from the machine's device, or, where a
        machine has none, from a measurement on this one. `samples_per_second` of one rank, if known, scales them.
        """
        at_batch = self._profiles(machine, rank_batch)
        if samples_per_second is None:
            return at_batch
        plain = at_batch(rank_batch)
        factor = plain.at_throughput(samples_per_second, "given").compute_us / plain.compute_us

        def scale(batch: int) -> Profile:
            profile = at_batch(batch)
            return profile.at_throughput(batch / (profile.compute_us * factor) * 1e6, "given")

        return scale

    def _profiles(self, machine: Machine, rank_batch: int) -> ProfileAtBatch:
        model, known = self.model, [*parts.names("models"), *NETWORKS]
        if model.endswith(".csv"):
            return read_csv(Path(model), rank_batch).at_batch
        if model not in known and not {".", ":"} & set(model):
            raise Problem(
                f"no model called '{model}'{did_you_mean(model, known)} 'bigbatch list models' shows all; "
                f"use one of them, {' or '.join(NETWORKS)}, or a .csv of layers"
            )
        if machine.device is not None:
            device, shapes = machine.device, self.layer_shapes()
            return lambda batch: device.profile(self.label, shapes, batch)
        if model in NETWORKS:
            raise Problem(
                f"machine '{machine.name}' has no device and '{model}' cannot be timed here: use a model part"
            )
        from bigbatch.scaling.layer_timing import time_layers

        return time_layers(model, self.options, self.sample_shape, self.classes, rank_batch).at_batch


@cache
def imagenet_layers(model: str, depth: int | None) -> list[LayerShape]:
    """Return the layers of a network for ImageNet, as in the published measurements."""
    return Workload(model, {} if depth is None else {"depth": depth}, IMAGENET_SHAPE, 1000).layer_shapes()


def parse_sample_shape(text: str) -> tuple[int, ...]:
    """`3,224,224` as a shape."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise Problem(f"--sample {text} is not a shape: write numbers with commas, like 3,224,224") from error


def parse_engines(texts: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the engines of `--engines ddp,horovod` or of `--engines ddp --engines horovod`, each once."""
    names = list(dict.fromkeys(name for text in texts for name in text.split(",") if name))
    if not names:
        raise Problem(f"no engine was named: use --engines with some of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise Problem(f"no engine called '{name}'{did_you_mean(name, known)} Use {', '.join(known)}")
    return names


def group_settings(settings: Iterable[str], engines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Group `machine.jitter.fraction=0.02`, `horovod.cycle_ms=5` and `model.depth=101` by their owner."""
    owners = ("model", "machine", *engines)
    groups: dict[str, dict[str, Any]] = {owner: {} for owner in owners}
    for setting in settings:
        path, equals, text = setting.partition("=")
        owner, dot, name = path.partition(".")
        if not equals or not dot or not name:
            raise Problem(f"'{setting}' is not a setting: write OWNER.NAME=VALUE, like horovod.cycle_ms=5")
        if owner not in groups:
            raise Problem(f"'{setting}' is for '{owner}'{did_you_mean(owner, owners)} Use {', '.join(owners)}")
        groups[owner][name] = parse_value(text)
    return groups
