"""The options that `scale measure` and `scale trace` share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from bigbatch import parts
from bigbatch.errors import Notice, Problem
from bigbatch.scaling.configuration import MeasuredModel
from bigbatch.scaling.networks import NETWORKS
from bigbatch.scaling.workload import group_settings, parse_engines, parse_sample_shape


def parse_model(name: str, sample: str, classes: int, settings: Sequence[str], engines: Sequence[str]) -> MeasuredModel:
    """Return the model that a user describes; `settings` are like model.depth=20 and ddp.bucket_mb=1."""
    if name in NETWORKS or name.endswith(".csv"):
        raise Problem(f"'{name}' is a table of layers and cannot be run: name a model ('bigbatch list models')")
    options = group_settings(settings, [engine for engine in engines if engine != "local"])
    if machine := options.pop("machine"):
        raise Problem(f"machine.{next(iter(machine))} is for a simulation, and this runs here: leave it out")
    return MeasuredModel(name, options.pop("model"), parse_sample_shape(sample), classes, options)


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
