"""Models. A part offers `build(config, dataset) -> nn.Module`.

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
WRAPPERS = ("module.", "_orig_mod.")  # prefixes that DataParallel and torch.compile add to every name


def build(config: parts.Config, dataset: Dataset) -> nn.Module:
    """Build the model that a config names for a dataset. A class outside of bigbatch gets only its own options."""
    from torch import nn

    model = parts.find("models", config.name).build(config, dataset)
    if not isinstance(model, nn.Module):
        raise Problem(
            f"model '{config.name}' built a {type(model).__name__}: "
            "name a torch.nn.Module, or a function that returns one"
        )
    return model


def features(model: nn.Module, x: Tensor) -> Tensor:
    """Return the input of the last layer, [samples, width]: from the model's own `features(x)`, or captured by a hook.

    The hook captures the input of the nn.Linear that is called last, whatever the order of registration.
    A `features` that is a submodule is not called: in most public networks it holds convolutions only.
    """
    own = _features_method(model)
    return features_and_output(model, x)[0] if own is None else own(x)


def features_and_output(model: nn.Module, x: Tensor) -> tuple[Tensor, Any]:
    """Return the features and the model's output, from one pass wherever `forward` calls `features`."""
    own = _features_method(model)
    if own is not None:
        return _call_with_own_features(model, own, x)
    captured, output = _call_with_last_linear_input(model, x)
    if captured is None or captured.ndim != 2:
        found = (
            "no nn.Linear was called" if captured is None else f"its last nn.Linear got shape {tuple(captured.shape)}"
        )
        raise Problem(
            f"{type(model).__name__} has no features of shape [samples, width] ({found}): "
            "give it a method features(x) that returns them"
        )
    return captured, output


def move_inputs(inputs: Tensor, model: nn.Module, device: torch.device) -> Tensor:
    """Return inputs on the device, floating-point ones in the model's dtype."""
    if inputs.is_floating_point():
        return inputs.to(device, next(model.parameters()).dtype, non_blocking=True)
    return inputs.to(device, non_blocking=True)


def _features_method(model: nn.Module) -> Callable[..., Tensor] | None:
    from torch import nn

    own = getattr(model, "features", None)
    return own if callable(own) and not isinstance(own, nn.Module) else None


def _call_with_own_features(model: nn.Module, own: Callable[..., Tensor], x: Tensor) -> tuple[Tensor, Any]:
    captured: list[Tensor] = []

    def capture(*arguments: Any, **options: Any) -> Tensor:
        found = own(*arguments, **options)
        if not options and len(arguments) == 1 and arguments[0] is x:
            captured.append(found.clone())  # later layers may work in place
        return found

    before = vars(model).get("features")
    model.features = capture  # type: ignore[assignment]
    try:
        output = model(x)
    finally:
        if before is None:
            del model.features
        else:
            model.features = before
    return (captured[0] if captured else own(x)), output


def _call_with_last_linear_input(model: nn.Module, x: Tensor) -> tuple[Tensor | None, Any]:
    from torch import nn

    captured: Tensor | None = None

    def capture(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal captured
        captured = inputs[0]

    hooks = [layer.register_forward_pre_hook(capture) for layer in model.modules() if isinstance(layer, nn.Linear)]
    try:
        output = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return captured, output


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Load published weights into a model: all of them, or none and a Problem.

    Takes .safetensors and the checkpoints of torch (.th, .pt, .pth): a state dict, or one under "state_dict" or
    "model", with or without the prefix of a wrapper. Counters that old BatchNorm did not have may be missing, and
    entries that a model names in `unused_weights` (auxiliary heads) are ignored.
    """
    weights = read_weights(path)
    unused: tuple[str, ...] = getattr(model, "unused_weights", ())
    weights = {key: tensor for key, tensor in weights.items() if not key.startswith(unused)} if unused else weights
    _check_names_and_shapes(model, weights, path)
    model.load_state_dict(weights)


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Return the tensors of a file of weights by their names in the model."""
    return _strip_wrapper_prefixes(_find_state_dict(_read_weights_file(Path(path)), path))


def _read_weights_file(path: Path) -> Any:
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix not in (*PICKLED, ".safetensors"):
        raise Problem(f"weights {path} end in '{path.suffix}': use a file that ends in .safetensors, .th, .pt or .pth")
    if not path.is_file():
        raise Problem(f"there are no weights at {path}: check the path")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise Problem(
            f"weights {path} are broken or hold more than tensors ({_first_line(error)}): "
            "download the file again, or save only its state dict as .safetensors"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]


def _find_state_dict(stored: Any, path: Path | str) -> dict[str, Tensor]:
    """Return the state dict of a checkpoint, which may be one level down."""
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
                f"weights {path} hold {type(value).__name__} at {key!r} in place of a tensor: "
                "save model.state_dict() and give that file"
            )
    return dict(stored)


def _strip_wrapper_prefixes(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in WRAPPERS:
        if all(key.startswith(prefix) for key in weights):
            return _strip_wrapper_prefixes({key.removeprefix(prefix): tensor for key, tensor in weights.items()})
    return weights


def _check_names_and_shapes(model: nn.Module, weights: dict[str, Tensor], path: Path | str) -> None:
    """Refuse weights that do not fit before any is copied, so that the model stays unchanged."""
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
                f"weights {path} have '{key}', which {kind} does not have{did_you_mean(key, own)} "
                "Give the options the weights were trained with"
            )
        if tensor.shape != own[key].shape:
            raise Problem(
                f"weights {path} have '{key}' of shape {tuple(tensor.shape)} where {kind} has {tuple(own[key].shape)}: "
                "give the options and the number of classes the weights were trained with"
            )
