"""What counts as a layer, which tensors are exempt from layer-wise learning rates, and what a matrix is for.

A layer is one parameter tensor. Biases and the scales of norms are so small and so differently shaped that a
learning rate from their norms means little. The rule that exempts tensors is independent of weight decay.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn

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
    """Return the name of a rule, which a saved optimizer keeps in place of a function."""
    return rule if isinstance(rule, str) else getattr(rule, "__qualname__", type(rule).__name__)


def apply_exclusion_rule(rule: Rule, parameters: Sequence[Tensor], names: Sequence[str] | None = None) -> list[bool]:
    """Return for each parameter whether the rule exempts it."""
    predicate: Any = _find_rule(rule) if isinstance(rule, str) else rule
    if not callable(predicate):
        raise ValueError(f"exclude must be a name or a function, got {rule!r}: use one of {', '.join(RULES)}")
    if _count_required_positional_arguments(predicate) < 2:
        return [bool(predicate(parameter)) for parameter in parameters]
    if names is None:
        raise ValueError(
            f"exclude={rule_name(rule)} needs names, but the parameters have none: pass model.named_parameters()"
        )
    return [bool(predicate(name, parameter)) for name, parameter in zip(names, parameters, strict=True)]


def _find_rule(rule: str) -> Callable[[Tensor], bool]:
    if rule not in RULES:
        raise ValueError(f"no exclusion rule called '{rule}'{did_you_mean(rule, RULES)} Use one of {', '.join(RULES)}")
    return RULES[rule]


def _count_required_positional_arguments(function: Callable[..., bool]) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arguments = inspect.signature(function).parameters.values()
    return sum(argument.kind in kinds and argument.default is argument.empty for argument in arguments)


def matrix_blocks(model: nn.Module) -> dict[str, int]:
    """Return the hidden matrices of a model by name, and how many matrices each one holds, one above the other.

    A hidden matrix is a tensor of two or more dimensions that is neither an embedding nor the head, the matrix that is
    registered last. A head that shares its weights with an embedding is the embedding.
    """
    matrices = [
        (module, name, parameter)
        for path, module in model.named_modules(remove_duplicate=False)
        for name, parameter in module.named_parameters(path, recurse=False)
        if parameter.ndim >= 2
    ]
    embeddings = {parameter for module, _, parameter in matrices if isinstance(module, nn.Embedding | nn.EmbeddingBag)}
    heads = {parameter for _, _, parameter in matrices[-1:]}
    return {
        name: _count_blocks(module, name) for module, name, parameter in matrices if parameter not in embeddings | heads
    }


def _count_blocks(module: nn.Module, name: str) -> int:
    owner, _, weight = name.rpartition(".")
    if weight.startswith(("weight_ih", "weight_hh")):
        return 4 if isinstance(module, nn.LSTM | nn.LSTMCell) else 3 if isinstance(module, nn.GRU | nn.GRUCell) else 1
    return 3 if weight == "in_proj_weight" or owner.rpartition(".")[2] == "qkv" else 1
