"""The model that a user names (a part, a published network or a table of layers) and the engines that train it."""

from __future__ import annotations

import os
import tomllib
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.errors import Notice, Problem, did_you_mean
from bigbatch.run import Run
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.options import ModelOptions
from bigbatch.scaling.profile import LayerShape, Profile, read_csv
from bigbatch.settings import parse_value
from bigbatch.trust import trust_typed

IMAGENET_SHAPE = (3, 224, 224)
BYTES_PER_NUMBER = 4  # float32
# published networks: VGG-16 and Inception-V3
NETWORKS = tomllib.loads(Path(__file__).with_name("networks.toml").read_text(encoding="utf-8"))
ProfileAtBatch = Callable[[int], Profile]


@dataclass(frozen=True)
class EngineConfiguration:
    """An engine on some ranks with a batch per rank. `settings` are options of the engine beside the workload's."""

    engine: str
    ranks: int
    rank_batch: int
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        options = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{self.engine}{options} {self.ranks}x{self.rank_batch}"


@dataclass(frozen=True)
class Workload:
    """A model with its options, the shape of its samples, and the options of the engines that train it."""

    name: str
    options: Mapping[str, Any]
    sample_shape: tuple[int, ...]
    classes: int
    engine_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.options.items())])

    def run(self, configuration: EngineConfiguration, **engine_options: Any) -> Run:
        """Return a run whose steps are measured: one micro-batch per rank, momentum, synthetic samples."""
        kind = configuration.engine
        engine = {"name": kind, **self.engine_options.get(kind, {}), **dict(configuration.settings), **engine_options}
        global_batch = configuration.ranks * configuration.rank_batch
        shapes = {"sample_shape": list(self.sample_shape), "classes": self.classes, "samples": global_batch}
        return Run(
            name="measured",
            dataset={"name": "synthetic", **shapes},
            model={"name": self.name, **self.options},
            global_batch=global_batch,
            micro_batch=configuration.rank_batch,
            optimizer={"name": "momentum", "lr": 1e-6},  # weights hardly move: the last step is as the first
            engine=engine,
            steps=1,
        )

    def gradient_bytes(self) -> int:
        """Build the model once, which also checks that it can be built, and return the size of its gradients."""
        from bigbatch.scaling.layers import build_model

        model, _ = build_model(self)
        sizes = [one.numel() * one.element_size() for one in model.parameters() if one.requires_grad]
        if not sizes:
            raise Problem(f"model '{self.name}' has no trainable parameter: name another model")
        return sum(sizes)

    def layer_shapes(self) -> list[LayerShape]:
        """Return the layers in the order of the forward pass."""
        if self.name not in NETWORKS:
            from bigbatch.scaling.layers import find_layer_shapes

            return find_layer_shapes(self)
        if self.options:
            option = next(iter(self.options))
            raise Problem(f"model '{self.name}' is a fixed table and has no option '{option}': leave it out")
        return network_layers(self.name)

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
        name, known = self.name, [*parts.names("models"), *NETWORKS]
        if name.endswith(".csv"):
            return read_csv(Path(name), rank_batch).at_batch
        if name not in known and not {".", ":"} & set(name):
            raise Problem(
                f"no model called '{name}'{did_you_mean(name, known)} 'bigbatch list models' shows all; "
                f"use one of them, {' or '.join(NETWORKS)}, or a .csv of layers"
            )
        if machine.device is not None:
            device, shapes = machine.device, self.layer_shapes()
            return lambda batch: device.profile(self.label, shapes, batch)
        if name in NETWORKS:
            raise Problem(f"machine '{machine.name}' has no device and '{name}' cannot be timed here: use a model part")
        from bigbatch.scaling.layers import time_layers

        return time_layers(self, rank_batch).at_batch


def network_layers(name: str) -> list[LayerShape]:
    """Return the layers of a published network in the order of the forward pass."""
    network, layers = NETWORKS[name], []
    for block in network["blocks"]:
        for branch in block["branches"]:
            inputs = block["inputs"]
            for conv, outputs, height, width, size in branch:
                label, weights, pixels = f"{block['name']}{conv}", inputs * outputs * height * width, size * size
                numbers = pixels * (inputs + outputs)
                if network["batchnorm"]:
                    layers.append(_layer(f"{label}.conv", (weights,), weights, pixels, numbers))
                    layers.append(_layer(f"{label}.bn", (outputs, outputs), 0, pixels, 2 * pixels * outputs))
                else:
                    layers.append(_layer(label, (weights, outputs), weights, pixels, numbers))
                inputs = outputs
    for label, inputs, outputs in network["linear"]:
        layers.append(_layer(label, (inputs * outputs, outputs), inputs * outputs, 1, inputs + outputs))
    return layers


def _layer(name: str, tensors: tuple[int, ...], weights: int, positions: int, numbers: int) -> LayerShape:
    sizes = tuple(BYTES_PER_NUMBER * count for count in tensors)
    return LayerShape(name, sizes, 2.0 * weights * positions, BYTES_PER_NUMBER * numbers)


@cache
def imagenet_layers(model: str, depth: int | None) -> list[LayerShape]:
    """Return the layers of a network for ImageNet, as in the published measurements."""
    return Workload(model, {} if depth is None else {"depth": depth}, IMAGENET_SHAPE, 1000).layer_shapes()


def parse_workload(options: ModelOptions, engines: Iterable[str]) -> tuple[Workload, dict[str, Any]]:
    """Return the model with the options of its engines, and the settings of the machine."""
    groups = group_settings(options.settings, engines)
    model_options, machine_settings = groups.pop("model"), groups.pop("machine")
    shape = parse_sample_shape(options.sample)
    trust_typed([options.model, model_options])
    return Workload(options.model, model_options, shape, options.classes, groups), machine_settings


def parse_real_workload(options: ModelOptions, engines: Sequence[str]) -> Workload:
    """Return the model whose steps are measured or traced."""
    if options.model in NETWORKS or options.model.endswith(".csv"):
        raise Problem(
            f"'{options.model}' is a table of layers and cannot be run: name a model ('bigbatch list models')"
        )
    workload, machine = parse_workload(options, [engine for engine in engines if engine != "local"])
    if machine:
        raise Problem(f"machine.{next(iter(machine))} is for a simulation, and this runs here: leave it out")
    return workload


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


def choose_engines(texts: Sequence[str], default: Sequence[str]) -> list[str]:
    """Return the named engines, or the default ones, of which Horovod is left out where it is not installed."""
    names = parse_engines(texts, parts.names("engines")) if texts else list(default)
    if "horovod" in names:
        from bigbatch.engines.horovod import check_installed

        try:
            check_installed()
        except Problem as missing:
            if texts:
                raise
            warnings.warn(Notice(f"horovod is left out: {missing}"), stacklevel=2)
            names.remove("horovod")
    return names


def warn_if_ranks_share_cores(ranks: int) -> None:
    cores = os.cpu_count() or 1
    if ranks > cores:
        warnings.warn(
            Notice(
                f"{ranks} ranks share {cores} cores: they take turns, so that a step takes longer than it would "
                "on as many cores, and no efficiency can be read from it"
            ),
            stacklevel=2,
        )
