"""What counts as a layer, and which tensors are exempt from layer-wise learning rates.

A layer is one parameter tensor. Biases and the scales of norms are so small and so differently shaped that a lr
made of their norm means little; which tensors are exempt is a rule of its own, independent of weight decay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from bigbatch.errors import did_you_mean

# a name below, callable(parameter) or callable(name, parameter)
Rule = str | Callable[..., bool]
RuleName = Literal["one_dimensional", "none", "all"]

RULES: dict[str, Callable[[Tensor], bool]] = {
    "one_dimensional": lambda parameter: parameter.ndim <= 1,
    "none": lambda parameter: False,
    "all": lambda parameter: True,
}


def rule_name(rule: Rule) -> str:
    """What a saved optimizer shows of its rule."""
    return rule if isinstance(rule, str) else getattr(rule, "__qualname__", type(rule).__name__)


def excluded(rule: Rule, parameters: Sequence[Tensor], names: Sequence[str] | None = None) -> list[bool]:
    """Whether the rule exempts each parameter."""
    predicate: Any = _named(rule) if isinstance(rule, str) else rule
    if not callable(predicate):
        raise ValueError(f"exclude must be a name or a function, but is {rule!r}: use one of {', '.join(RULES)}")
    if _positional_arguments(predicate) < 2:
        return [bool(predicate(parameter)) for parameter in parameters]
    if names is None:
        raise ValueError(
            f"exclude={rule_name(rule)} asks for names, but the parameters came without: pass model.named_parameters()"
        )
    return [bool(predicate(name, parameter)) for name, parameter in zip(names, parameters, strict=True)]


def _named(rule: str) -> Callable[[Tensor], bool]:
    if rule not in RULES:
        raise ValueError(f"no exclusion rule called '{rule}'{did_you_mean(rule, RULES)} Use one of {', '.join(RULES)}")
    return RULES[rule]


def _positional_arguments(function: Callable[..., bool]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arguments = inspect.signature(function).parameters.values()
    return sum(argument.kind in kinds and argument.default is argument.empty for argument in arguments)
