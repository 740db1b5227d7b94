"""Where features come from: a trained network, a file, or an array."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbatch import models, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem, did_you_mean
from bigbatch.filters.pipeline.module_hash import hash_module

FEATURE_FILES = (".npz", ".npy", ".parquet")
WEIGHTS = (*models.PICKLED, ".safetensors")


@dataclass(frozen=True)
class FeatureSource:
    """Exactly one of `module`, `file` and `array`; `about` is what the manifest says of it."""

    hash: str
    module: nn.Module | None = None
    file: Path | None = None
    array: NDArray[np.number] | None = None
    about: dict[str, Any] = field(default_factory=dict)


def open_feature_source(network: str, model: Any, dataset: Dataset) -> FeatureSource:
    """Open the folder of a run, a file of weights of a model, a dotted model, or a file of features."""
    path = Path(network)
    if (path / "run.json").is_file():
        return _source_from_run(path, dataset)
    if path.suffix in FEATURE_FILES:
        return _source_from_file(path)
    if path.suffix in WEIGHTS:
        return _source_from_weights(path, model, dataset)
    if "." in network or ":" in network:
        built = models.build(parts.configure("models", network), dataset)
        return source_from_module(built, {"network": network})
    if network in parts.names("models"):
        raise Problem(
            f"model '{network}' is not trained: give the folder of a run of it, or its weights and model={network}"
        )
    raise Problem(
        f"there is no network '{network}'{did_you_mean(network, parts.names('recipes'))} Give the folder of a run, "
        f"weights ({', '.join(WEIGHTS)}), a model as mypkg.mod:Class, or features ({', '.join(FEATURE_FILES)})"
    )


def source_from_module(module: nn.Module, about: dict[str, Any] | None = None) -> FeatureSource:
    """Use an nn.Module as it is."""
    return FeatureSource(
        hash_module(module), module=module, about=about or {"network": f"{type(module).__name__} in memory"}
    )


def source_from_array(features: NDArray[np.number] | Tensor) -> FeatureSource:
    """Use features in memory."""
    array = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if array.dtype.kind not in "fiu":
        raise Problem(f"features are of type {array.dtype}, not numbers: give an array of floats, one row per sample")
    return FeatureSource(hash_array(array), array=array, about={"network": "features in memory"})


def _source_from_run(path: Path, dataset: Dataset) -> FeatureSource:
    run = Folder(path).run()
    checkpoints = sorted((path / "checkpoint").glob("step-*"))
    if not checkpoints:
        raise Problem(f"{path} has no checkpoint yet: 'bigbatch resume {path}' trains it")
    module = models.build(run.model, dataset)
    models.load_weights(module, checkpoints[-1] / "model.safetensors")
    about = {"network": str(path), "run": run.hash, "checkpoint": checkpoints[-1].name}
    return source_from_module(module, about | {"model": run.model.model_dump(mode="json")})


def _source_from_weights(path: Path, model: Any, dataset: Dataset) -> FeatureSource:
    if model is None:
        raise Problem(f"weights {path} do not say which model they are for: add model=NAME, like model=resnet_cifar")
    config = parts.configure("models", model)
    module = models.build(config, dataset)
    models.load_weights(module, path)
    return source_from_module(module, {"network": str(path), "model": config.model_dump(mode="json")})


def _source_from_file(path: Path) -> FeatureSource:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Problem(f"features {path} cannot be read ({error.strerror}): check the path") from error
    return FeatureSource(digest, file=path, about={"network": str(path)})


@dataclass(frozen=True)
class NetworkOutputs:
    """The width of a network's features, and whether its outputs are the dataset's classes."""

    width: int
    are_classes: bool


@torch.no_grad()
def check_network(module: nn.Module, inputs: Tensor, classes: int, name: str, any_classes: bool) -> NetworkOutputs:
    """Return what the network outputs, or raise a Problem if the samples or the classes do not fit."""
    try:
        features, output = models.features_and_output(module, inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Problem(
            f"network {name} cannot take samples of shape {tuple(inputs.shape[1:])} ({reason}): "
            "give one that was trained on this dataset"
        ) from error
    outputs = output.shape[1] if isinstance(output, Tensor) and output.ndim == 2 else None
    if outputs not in (None, classes) and not any_classes:
        raise Problem(
            f"network {name} knows {outputs} classes but the dataset has {classes}: give one that was trained "
            "on it, or set any_classes=true to use the features of this one"
        )
    return NetworkOutputs(features.shape[1], outputs == classes)
