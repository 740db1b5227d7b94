"""The base class of layer-wise optimizers: checked groups, exclusion, and the collection of layers for a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim.layerwise.options import check_options
from bigbatch.optim.layerwise.shards import is_sharded, local_gradient

# torch 2.13's fused SGD kernel for the CPU leaves half-precision weights unchanged
FUSED_DTYPES = (torch.float32, torch.float64)
Group = dict[str, Any]


class LayerTensors:
    """One layer in a step: its parameter, gradient and state; of a sharded parameter, this rank's shards."""

    __slots__ = ("excluded", "full_parameter", "gradient", "norms", "parameter", "sharded", "state")

    def __init__(self, full_parameter: Any, gradient: Any, state: dict[str, Any], excluded: bool) -> None:
        self.full_parameter = full_parameter
        self.parameter: Tensor = full_parameter
        self.gradient: Tensor = gradient
        self.state = state
        self.excluded = excluded
        self.norms: Sequence[float] | None = None  # set before the update where ranks communicate
        self.sharded = False
        if type(full_parameter) is not Parameter and is_sharded(full_parameter):
            self.sharded = True
            self.parameter = full_parameter.to_local()
            self.gradient = local_gradient(gradient, full_parameter)

    def buffer(self, name: str) -> Tensor:
        """Return this rank's part of a tensor of the optimizer's state."""
        tensor: Tensor = self.state[name].to_local() if self.sharded else self.state[name]
        return tensor


LayersByGroup = list[tuple[Group, list[LayerTensors]]]


class LayerWiseOptimizer(Optimizer):
    """Base of the layer-wise optimizers. A subclass has `_update`."""

    needs_closure = False

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        super().__init__(params, {"differentiable": False, **defaults})

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, whose options override the constructor's. An invalid group leaves the optimizer unchanged."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_group(group)
            _apply_exclusion_rule(group, group["exclude"])
        except ValueError:
            self.param_groups.pop()
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Fill in what a state saved by another optimizer (torch's SGD, say) does not have."""
        super().__setstate__(state)
        for tensors in self.state.values():
            for name in [name for name, value in tensors.items() if value is None]:
                del tensors[name]
        for group in self.param_groups:
            for name, value in self.defaults.items():
                if name != "exclude":
                    group.setdefault(name, value)
            if len(group.get("excluded", ())) != len(group["params"]):
                _apply_exclusion_rule(group, self.defaults["exclude"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. The closure, if any, evaluates the model with gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        collected = [(group, self._collect_layers(group)) for group in self.param_groups]
        if not any(group_layers for _, group_layers in collected):
            raise ValueError(f"{type(self).__name__}.step() found no gradient on any parameter: call backward() first")
        self._update(collected)
        return loss

    def _collect_layers(self, group: Group) -> list[LayerTensors]:
        """Return the layers of a group that have a gradient."""
        collected = []
        for parameter, excluded in zip(group["params"], group["excluded"], strict=True):
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                raise ValueError(f"{type(self).__name__} does not support sparse gradients: use sparse=False")
            state = self.state[parameter]
            if not state:
                self._init_state(group, parameter, state)
            collected.append(LayerTensors(parameter, gradient, state, excluded))
        return collected

    def _check_group(self, group: Group) -> None:
        """Refuse options and parameters that no step could use."""
        check_options(type(self), group)
        if group["foreach"] and group["fused"]:
            raise ValueError("foreach=True and fused=True exclude each other: set one of them")
        for parameter in group["params"]:
            if parameter.is_complex():
                raise ValueError(
                    f"{type(self).__name__} does not support complex parameters (shape {tuple(parameter.shape)}): "
                    "split them with torch.view_as_real"
                )
            if group["fused"] and (not parameter.is_cpu or parameter.dtype not in FUSED_DTYPES):
                raise ValueError(
                    f"fused=True needs float32 or float64 parameters on the CPU, but one is {parameter.dtype} on "
                    f"{parameter.device}: leave fused at None"
                )

    def _init_state(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        """Create the state of a parameter before its first step: the momentum, if any."""
        if group["momentum"]:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def _update(self, collected: LayersByGroup) -> None:
        """Update the weights of all layers."""
        raise NotImplementedError


def _apply_exclusion_rule(group: Group, rule: layers.Rule) -> None:
    """Note which parameters of a group the rule exempts, and the rule's name in place of a function."""
    group["excluded"] = layers.apply_exclusion_rule(rule, group["params"], group.get("param_names"))
    group["exclude"] = layers.rule_name(rule)
