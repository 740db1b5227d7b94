"""Where features come from: a trained network, a file, or an array; and the hash that identifies each."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bigbatch import models, parts
from bigbatch.artifacts import checkpoint
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_array
from bigbatch.errors import Problem, did_you_mean

OUT_OF_FOLD = "out_of_fold"  # networks that are trained for a filter, instead of one that is given
FEATURE_FILES = (".npz", ".npy", ".parquet")
WEIGHTS = (*models.PICKLED, ".safetensors")
_NO_SETTING = {*vars(nn.Module()), "training"}  # what every module has


@dataclass(frozen=True)
class FeatureSource:
    """Exactly one of `module`, `file` and `array`; `about` is what the manifest says of it."""

    hash: str
    module: nn.Module | None = None
    file: Path | None = None
    array: NDArray[np.number] | None = None
    about: dict[str, Any] = field(default_factory=dict)


def open_feature_source(
    network: str, model: str | dict[str, Any] | None, dataset: Dataset, *, any_classes: bool = False
) -> FeatureSource:
    """Open the folder of a run, a file of weights of a model, a dotted model, or a file of features.

    With `any_classes` the model is built for as many classes as the weights are for.
    """
    path = Path(network)
    if (path / "run.json").is_file():
        folder = Folder(path)
        run = folder.run()
        newest, _ = checkpoint.find_newest(folder.checkpoints, run.hash)
        if newest is None:
            raise Problem(f"{path} has no checkpoint yet: 'bigbatch resume {path}' trains it")
        config, weights = run.model, newest.path / "model.safetensors"
        about = {"network": str(path), "run": run.hash, "checkpoint": newest.path.name}
    elif path.suffix in FEATURE_FILES:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise Problem(f"features {path} cannot be read ({error.strerror}): check the path") from error
        return FeatureSource(digest, file=path, about={"network": str(path)})
    elif path.suffix in WEIGHTS:
        if model is None:
            raise Problem(
                f"weights {path} do not say which model they are for: add model=NAME, like model=resnet_cifar"
            )
        config, weights, about = parts.configure("models", model), path, {"network": str(path)}
    elif "." in network or ":" in network:
        return source_from_module(models.build(parts.configure("models", network), dataset), {"network": network})
    elif network in parts.names("models"):
        raise Problem(
            f"model '{network}' is not trained: give the folder of a run of it, or its weights and model={network}"
        )
    else:
        raise Problem(
            f"there is no network '{network}'{did_you_mean(network, parts.names('recipes'))} Give the folder of a run, "
            f"weights ({', '.join(WEIGHTS)}), a model as mypkg.mod:Class, features ({', '.join(FEATURE_FILES)}), or "
            f"{OUT_OF_FOLD}"
        )
    module = models.build(config, dataset)
    if any_classes and (
        count := _find_differing_class_count(models.read_weights(weights), module, len(dataset.classes))
    ):
        module = models.build(config, replace(dataset, classes=tuple(map(str, range(count)))))
    models.load_weights(module, weights)
    return source_from_module(module, about | {"model": config.model_dump(mode="json")})


def _find_differing_class_count(weights: dict[str, Tensor], module: nn.Module, classes: int) -> int | None:
    """Return for how many classes weights are: the rows of those that differ from the module's in their rows only."""
    own = module.state_dict()
    counts = {
        len(tensor)
        for name, tensor in weights.items()
        if name in own and tensor.shape != own[name].shape == torch.Size((classes, *tensor.shape[1:]))
    }
    return counts.pop() if len(counts) == 1 else None


def source_from_module(module: nn.Module, about: dict[str, Any] | None = None) -> FeatureSource:
    """Use an nn.Module as it is."""
    about = about or {"network": f"{type(module).__name__} in memory"}
    return FeatureSource(hash_module(module), module=module, about=about)


def source_from_array(features: NDArray[np.number] | Tensor) -> FeatureSource:
    """Use features in memory."""
    array = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    if array.dtype.kind not in "fiu":
        raise Problem(f"features are of type {array.dtype}, not numbers: give an array of floats, one row per sample")
    return FeatureSource(hash_array(array), array=array, about={"network": "features in memory"})


def hash_module(module: nn.Module) -> str:
    """Hash what a network computes: the same in every process and on every rank, another after any change.

    The hash covers weights and buffers, the structure of layers, each layer's plain attributes (a scale, a number of
    groups), and the code of each class that is not torch's, without comments and line breaks. It does not cover
    functions that such code calls, nor attributes that are neither plain values nor tensors.
    """
    digest = hashlib.sha256(repr(module).encode())
    tensors = dict(module.named_buffers()) | module.state_dict()  # buffers that are not saved count too
    code = {layer_class: _class_code(layer_class) for layer_class in {type(layer) for layer in module.modules()}}
    for name, layer in module.named_modules():
        own = {key: value for key, value in vars(layer).items() if key not in _NO_SETTING}
        plain = sorted((key, value) for key, value in own.items() if _is_plain(value))
        digest.update(repr([name, *code[type(layer)], plain]).encode())
        tensors |= {f"{name}.{key}": value for key, value in own.items() if isinstance(value, Tensor)}
    for name, tensor in sorted(tensors.items()):
        if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name}{values.dtype}{tuple(values.shape)}".encode())
            digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(item) for pair in value.items() for item in pair)
    return value is None or isinstance(value, bool | int | float | complex | str | torch.dtype)


def _class_code(layer_class: type) -> list[str]:
    """Return name and code of a class and of its base classes up to torch's."""
    found = [layer_class.__module__, layer_class.__qualname__]
    for part in layer_class.__mro__:
        if part is not object and part.__module__.partition(".")[0] != "torch":
            try:
                found.append(ast.dump(ast.parse(textwrap.dedent(inspect.getsource(part)))))
            except (OSError, TypeError, SyntaxError):  # written in C, or in an interactive session
                found.append(part.__qualname__)
    return found
