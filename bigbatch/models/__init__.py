"""Models: what learns. A part offers `build(config, dataset) -> nn.Module`.

Each module of bigbatch has `features(x)`, the input of its last layer as [samples, width], and its `forward(x)` is
that last layer applied to it. torch is imported where it is used, so that listing models stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch import parts
from bigbatch.errors import Problem, did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bigbatch.datasets import Dataset

PICKLED = (".th", ".pt", ".pth")
WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name


def build(config: parts.Config, dataset: Dataset) -> nn.Module:
    """The model a config names, made for a dataset. A class from outside gets only its own options."""
    from torch import nn

    model = parts.find("models", config.name).build(config, dataset)
    if not isinstance(model, nn.Module):
        raise Problem(
            f"model '{config.name}' built a {type(model).__name__}: "
            "name a torch.nn.Module, or a function that returns one"
        )
    return model


def features(model: nn.Module, x: Tensor) -> Tensor:
    """What goes into the last layer, [samples, width]: by the model's own `features(x)`, or caught on the way.

    Caught is the input of the nn.Linear that is called last, whatever the order in which layers were registered.
    A `features` that is a submodule is not asked: in most public networks it holds convolutions only.
    """
    own = _own_features(model)
    return features_and_output(model, x)[0] if own is None else own(x)


def features_and_output(model: nn.Module, x: Tensor) -> tuple[Tensor, Any]:
    """`features`, and what the model itself returns: one pass for both wherever `forward` goes through `features`."""
    own = _own_features(model)
    if own is not None:
        return _own_features_and_output(model, own, x)
    caught, output = _last_linear_input_and_output(model, x)
    if caught is None or caught.ndim != 2:
        found = "no nn.Linear was called" if caught is None else f"its last nn.Linear got shape {tuple(caught.shape)}"
        raise Problem(
            f"{type(model).__name__} shows no features of shape [samples, width] ({found}): "
            "give it a method features(x) that returns them"
        )
    return caught, output


def move_inputs(inputs: Tensor, model: nn.Module, device: torch.device) -> Tensor:
    """Inputs on the model's device, floating-point ones in the model's dtype."""
    if inputs.is_floating_point():
        return inputs.to(device, next(model.parameters()).dtype, non_blocking=True)
    return inputs.to(device, non_blocking=True)


def _own_features(model: nn.Module) -> Callable[..., Tensor] | None:
    from torch import nn

    own = getattr(model, "features", None)
    return own if callable(own) and not isinstance(own, nn.Module) else None


def _own_features_and_output(model: nn.Module, own: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Any]:
    caught: list[Tensor] = []

    def catch(*arguments: Any, **options: Any) -> Tensor:
        found = own(*arguments, **options)
        if not options and len(arguments) == 1 and arguments[0] is x:
            caught.append(found.clone())  # what follows may work in place
        return found

    before = vars(model).get("features")
    model.features = catch  # type: ignore[assignment]
    try:
        output = model(x)
    finally:
        if before is None:
            del model.features
        else:
            model.features = before
    return (caught[0] if caught else own(x)), output


def _last_linear_input_and_output(model: nn.Module, x: Tensor) -> tuple[Tensor | None, Any]:
    from torch import nn

    caught: Tensor | None = None

    def catch(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal caught
        caught = inputs[0]

    hooks = [layer.register_forward_pre_hook(catch) for layer in model.modules() if isinstance(layer, nn.Linear)]
    try:
        output = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return caught, output


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Put published weights into a model: all of them, or none and a Problem.

    Takes .safetensors and the checkpoints of torch (.th, .pt, .pth): a state dict, or one under "state_dict" or
    "model", with or without the prefix of a wrapper. Counters that old BatchNorm did not have may be missing, and
    entries that a model names in `unused_weights` (auxiliary heads) are left out.
    """
    weights = _without_wrappers(_tensors(_read(Path(path)), path))
    unused: tuple[str, ...] = getattr(model, "unused_weights", ())
    weights = {key: tensor for key, tensor in weights.items() if not key.startswith(unused)} if unused else weights
    _check_fit(model, weights, path)
    model.load_state_dict(weights)


def _read(path: Path) -> Any:
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix not in (*PICKLED, ".safetensors"):
        raise Problem(f"weights {path} end in '{path.suffix}': give a file ending in .safetensors, .th, .pt or .pth")
    if not path.is_file():
        raise Problem(f"there are no weights at {path}: check the path")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise Problem(
            f"weights {path} are broken or hold more than tensors ({_first_line(error)}): "
            "fetch the file again, or save only its state dict as .safetensors"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]


def _tensors(stored: Any, path: Path | str) -> dict[str, Tensor]:
    """The state dict in a checkpoint, which may lie one level down."""
    from torch import Tensor

    if isinstance(stored, Mapping):
        for key in ("state_dict", "model"):
            if isinstance(stored.get(key), Mapping):
                stored = stored[key]
                break
    if not isinstance(stored, Mapping) or not stored:
        raise Problem(f"weights {path} hold no state dict: save model.state_dict() and give that file")
    for key, value in stored.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise Problem(
                f"weights {path} hold {type(value).__name__} at {key!r} where a tensor belongs: "
                "save model.state_dict() and give that file"
            )
    return dict(stored)


def _without_wrappers(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in WRAPPERS:
        if all(key.startswith(prefix) for key in weights):
            return _without_wrappers({key.removeprefix(prefix): tensor for key, tensor in weights.items()})
    return weights


def _check_fit(model: nn.Module, weights: dict[str, Tensor], path: Path | str) -> None:
    """Before anything is copied, so that a file that does not fit leaves the model as it was."""
    own = model.state_dict()
    kind = type(model).__name__
    for key in own:
        if key not in weights and not key.endswith(".num_batches_tracked"):
            raise Problem(
                f"weights {path} have no '{key}', which {kind} needs{did_you_mean(key, weights)} "
                "Give the options the weights were trained with"
            )
    for key, tensor in weights.items():
        if key not in own:
            raise Problem(
                f"weights {path} have '{key}', which {kind} has not{did_you_mean(key, own)} "
                "Give the options the weights were trained with"
            )
        if tensor.shape != own[key].shape:
            raise Problem(
                f"weights {path} have '{key}' of shape {tuple(tensor.shape)} where {kind} has {tuple(own[key].shape)}: "
                "give the options and the number of classes the weights were trained with"
            )
