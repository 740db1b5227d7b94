"""An optimizer's options, declared once: in the signature of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import Field, ValidationError, create_model
from torch.optim import Optimizer

from bigbatch import layers, parts

Momentum = Annotated[float, Field(ge=0, lt=1)]
DESCRIPTIONS = {
    "lr": "the learning rate; a schedule may scale, warm up and decay it",
    "momentum": "what a step keeps of the last one",
    "weight_decay": "β: how strongly weights are drawn towards zero",
    "nesterov": "Nesterov's momentum",
    "betas": "what the averages of the gradient and of its square keep in each step",
    "eps": "added to the divisor",
    "trust_coefficient": "η of the layer-wise learning rate",
    "trust_clip": "layer-wise learning rates are at most 1",
    "exclude": "the rule for tensors that take lr as it is; see bigbatch/layers.py",
}
# a run describes the training, not how its arithmetic is done
_NOT_IN_CONFIG = ("self", "params", "maximize", "foreach", "fused")


@cache
def config_from_constructor(optimizer: type[Optimizer], **flags: str | bool) -> type[parts.Config]:
    """Return the Config of an optimizer: its constructor's arguments with their types, constraints and defaults.

    `flags` are those of `parts.Config`, like scaling_rule="muon".
    """
    types = get_type_hints(optimizer.__init__, include_extras=True) | {"exclude": layers.RuleName}
    fields: dict[str, Any] = {
        name: (types.get(name, Any), Field(argument.default, description=DESCRIPTIONS.get(name)))
        for name, argument in inspect.signature(optimizer.__init__).parameters.items()
        if name not in _NOT_IN_CONFIG and argument.default is not argument.empty
    }
    base = type("Config", (parts.Config,), {"__module__": optimizer.__module__, **flags})
    return create_model("Config", __base__=base, __module__=optimizer.__module__, **fields)


def constructor_options(local_variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options among a constructor's `locals()`."""
    return {name: value for name, value in local_variables.items() if name not in ("self", "params", "__class__")}


def check_options(optimizer: type[Optimizer], options: Mapping[str, Any]) -> None:
    """Refuse values that the constructor's types and constraints exclude. `exclude` may be a function: see `layers`."""
    config = config_from_constructor(optimizer)  # type: ignore[arg-type]  # classes are hashable
    checked = {name: _plain_value(options[name]) for name in config.model_fields.keys() & options if name != "exclude"}
    try:
        config.model_validate(checked, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Input ")
        raise ValueError(f"{first['loc'][0]} {reason}, got {first['input']!r}: change it") from None


def _plain_value(value: Any) -> Any:
    """Return a tensor's or numpy's number as Python's, and a list (betas) as a tuple."""
    if isinstance(value, list):
        return tuple(value)
    return value.item() if hasattr(value, "item") else value
