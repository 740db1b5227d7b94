"""From what a user names to what is simulated: a model for any batch a rank, and the options of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.errors import Problem, did_you_mean
from bigbatch.scaling import networks
from bigbatch.scaling.machine import Machine
from bigbatch.scaling.profile import Profile, read_csv
from bigbatch.settings import parse_value

IMAGENET = (3, 224, 224)
MOST_RANK_BATCH = 10_000_000
Profiles = Callable[[int], Profile]


def parse_sample_shape(text: str) -> tuple[int, ...]:
    """`3,224,224`: what a user writes for a sample."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise Problem(f"--sample {text} is no shape: write numbers with commas, like 3,224,224") from error


def shapes_of(model: str, options: Mapping[str, Any], sample_shape: tuple[int, ...], classes: int) -> list[Any]:
    """The layers of a network: a model part, or one known from elsewhere."""
    if model in networks.NETWORKS:
        if options:
            raise Problem(f"model '{model}' is a fixed table and has no option '{next(iter(options))}': leave it out")
        return networks.NETWORKS[model]()
    from bigbatch.scaling import shapes

    return shapes.of_part(model, options, sample_shape, classes)


@cache
def imagenet_layers(model: str, depth: int | None) -> list[Any]:
    """What the published points ask for: ImageNet networks."""
    return shapes_of(model, {} if depth is None else {"depth": depth}, IMAGENET, 1000)


def profiles(
    model: str,
    machine: Machine,
    *,
    options: Mapping[str, Any],
    sample_shape: tuple[int, ...],
    classes: int,
    rank_batch: int,
    samples_per_second: float | None = None,
) -> Profiles:
    """What one rank does in a step, for any batch.

    Times come from a table of layers (a .csv, given for `rank_batch`), from the machine's device, or, where a machine
    has none, from a measurement on this one. `samples_per_second` of one rank, where it is known, sets their sum.
    """
    if not 1 <= rank_batch <= MOST_RANK_BATCH:
        raise Problem(f"--batch {rank_batch} makes no sense: use a number of samples a rank from 1 on")
    if samples_per_second is not None and not 0 < samples_per_second < float("inf"):
        raise Problem(f"--samples-per-second {samples_per_second} is no speed: use a positive number")
    if model.endswith(".csv"):
        return _at_speed(read_csv(Path(model), rank_batch).at_batch, samples_per_second, rank_batch)
    if model not in networks.NETWORKS and not {".", ":"} & set(model) and model not in parts.names("models"):
        known = [*parts.names("models"), *networks.NETWORKS]
        raise Problem(
            f"no model called '{model}'{did_you_mean(model, known)} 'bigbatch list models' shows all; "
            f"{' and '.join(networks.NETWORKS)} are known too, and a .csv of layers will do"
        )
    if machine.device is not None:
        device, shapes = machine.device, shapes_of(model, options, sample_shape, classes)
        label = " ".join([model, *(f"{name}={value}" for name, value in options.items())])
        return _at_speed(lambda batch: device.profile(label, shapes, batch), samples_per_second, rank_batch)
    if model in networks.NETWORKS:
        raise Problem(f"machine '{machine.name}' has no device and '{model}' cannot be timed here: name a model part")
    from bigbatch.scaling.layer_timing import time_layers

    return _at_speed(
        time_layers(model, options, sample_shape, classes, rank_batch).at_batch, samples_per_second, rank_batch
    )


def _at_speed(plain: Profiles, samples_per_second: float | None, rank_batch: int) -> Profiles:
    if samples_per_second is None:
        return plain
    factor = plain(rank_batch).at_speed(samples_per_second, "given").compute_us / plain(rank_batch).compute_us

    def scaled(batch: int) -> Profile:
        profile = plain(batch)
        return profile.at_speed(batch / (profile.compute_us * factor) * 1e6, "given")

    return scaled


def group_settings(settings: Iterable[str], engines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """`machine.jitter.fraction=0.02`, `horovod.cycle_ms=5`, `model.depth=101` by what they are for."""
    owners = ("model", "machine", *engines)
    found: dict[str, dict[str, Any]] = {owner: {} for owner in owners}
    for setting in settings:
        path, equals, text = setting.partition("=")
        owner, dot, name = path.partition(".")
        if not equals or not dot or not name:
            raise Problem(f"'{setting}' is not a setting: write OWNER.NAME=VALUE, like horovod.cycle_ms=5")
        if owner not in found:
            raise Problem(f"'{setting}' is for '{owner}'{did_you_mean(owner, owners)} Use {', '.join(owners)}")
        found[owner][name] = parse_value(text)
    return found
