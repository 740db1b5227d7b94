"""Momentum SGD with one learning rate per layer: the base of LARS, PercentDelta and MedianCurvature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch.optim.layerwise.base import Group, LayersByGroup, LayerTensors, LayerWiseOptimizer
from bigbatch.optim.layerwise.kernels import (
    Kernel,
    choose_implementation,
    decayed_gradient,
    decayed_gradients,
    fused_sgd_kernel,
    group_by_device_and_dtype,
    lr_after_momentum,
    lr_before_momentum,
    split_by_kernel_fit,
    stack_small_layers,
)
from bigbatch.optim.layerwise.norms import foreach_norms, norm, stacked_norms
from bigbatch.optim.layerwise.shards import sharded_norms


class LayerWiseMomentum(LayerWiseOptimizer):
    """Momentum SGD whose learning rate is multiplied by a ratio λ per layer: v ← m·v + lr·λ·(g + βw); w ← w − v.

    A subclass says which norms it needs (`_tensors_to_norm`, `norm_order`) and which ratio they give (`_trust_ratio`).
    """

    norm_order = 2

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        # dampening is not used; torch's SGD expects it in a state that it takes over
        super().__init__(params, {"dampening": 0.0, **defaults})

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if group["nesterov"] and group["momentum"] == 0:
            raise ValueError("nesterov=True needs a momentum, but momentum is 0: set momentum=0.9")
        if group["nesterov"] and group["fused"]:
            raise ValueError("fused=True does not support nesterov=True: leave fused at None")

    def _tensors_to_norm(self, group: Group, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors whose norms determine the ratio."""
        raise NotImplementedError

    def _trust_ratio(self, group: Group, norms: Sequence[float], elements: int) -> float:
        """Return λ of one layer."""
        raise NotImplementedError

    def _update(self, collected: LayersByGroup) -> None:
        self._compute_sharded_norms(collected)
        for group, group_layers in collected:
            implementation = choose_implementation(group, group_layers)
            if implementation == "foreach":
                self._foreach_update(group, group_layers)
            elif implementation == "fused":
                self._fused_update(group, group_layers)
            else:
                for layer in group_layers:
                    self._single_tensor_update(group, layer)

    def _compute_sharded_norms(self, collected: LayersByGroup) -> None:
        """Set the norms of the sharded layers of all groups, with one all-reduce."""
        sharded = [(group, layer) for group, found in collected for layer in found if layer.sharded]
        sharded = [(group, layer) for group, layer in sharded if not layer.excluded]
        if sharded:
            shards = [self._tensors_to_norm(group, layer.parameter, layer.gradient) for group, layer in sharded]
            norms = sharded_norms([layer.full_parameter for _, layer in sharded], shards, self.norm_order)
            for (_, layer), layer_norms in zip(sharded, norms, strict=True):
                layer.norms = layer_norms

    def _compute_norms(self, group: Group, layer: LayerTensors) -> Sequence[float]:
        return [
            norm(tensor, self.norm_order) for tensor in self._tensors_to_norm(group, layer.parameter, layer.gradient)
        ]

    def _compute_stacked_norms(self, group: Group, weights: Tensor, gradients: Tensor) -> Iterable[Sequence[float]]:
        columns = [
            stacked_norms(tensor, self.norm_order) for tensor in self._tensors_to_norm(group, weights, gradients)
        ]
        return zip(*columns, strict=True)

    def _set_norms_by_foreach(self, group: Group, group_layers: Sequence[LayerTensors]) -> None:
        missing = [layer for layer in group_layers if layer.norms is None and not layer.excluded]
        tensors = [self._tensors_to_norm(group, layer.parameter, layer.gradient) for layer in missing]
        columns = [foreach_norms(column, self.norm_order) for column in zip(*tensors, strict=True)]
        for layer, layer_norms in zip(missing, zip(*columns, strict=True), strict=True):
            layer.norms = layer_norms

    def _layer_lr(self, group: Group, layer: LayerTensors) -> float:
        """Return the factor of g + βw that goes into the momentum."""
        lr = lr_before_momentum(group)
        if layer.excluded:
            return lr
        norms = layer.norms or self._compute_norms(group, layer)
        return lr * self._trust_ratio(group, norms, layer.full_parameter.numel())

    def _fused_update(self, group: Group, group_layers: list[LayerTensors]) -> None:
        update = fused_sgd_kernel(group)
        by_dtype, others = split_by_kernel_fit(group_layers, "momentum_buffer")
        for fitting in by_dtype:
            excluded = [layer for layer in fitting if layer.excluded]
            if excluded:  # one learning rate for all, so one call updates them
                update(*_kernel_tensors(group, excluded), lr_before_momentum(group))
            one_by_one, stacks = stack_small_layers([layer for layer in fitting if not layer.excluded])
            for layer in one_by_one:
                update(*_kernel_tensors(group, [layer]), self._layer_lr(group, layer))
            for stack in stacks:
                self._update_stack(group, stack, update)
        for layer in others:
            self._single_tensor_update(group, layer)

    def _update_stack(self, group: Group, stack: list[LayerTensors], update: Kernel) -> None:
        """Compute the norms of small layers together, then update each while it is in the cache."""
        parameters, gradients, buffers = _kernel_tensors(group, stack)
        lr, elements = lr_before_momentum(group), parameters[0].numel()
        norms = self._compute_stacked_norms(group, torch.stack(parameters), torch.stack(gradients))
        for index, layer_norms in enumerate(norms):
            one = slice(index, index + 1)
            update(parameters[one], gradients[one], buffers[one], lr * self._trust_ratio(group, layer_norms, elements))

    def _single_tensor_update(self, group: Group, layer: LayerTensors) -> None:
        momentum = group["momentum"]
        step = decayed_gradient(group, layer).mul_(self._layer_lr(group, layer))
        if momentum:
            buffer = layer.buffer("momentum_buffer").mul_(momentum).add_(step)
            step = step.add_(buffer, alpha=momentum) if group["nesterov"] else buffer
        layer.parameter.add_(step, alpha=-lr_after_momentum(group))

    def _foreach_update(self, group: Group, group_layers: list[LayerTensors]) -> None:
        momentum = float(group["momentum"])
        self._set_norms_by_foreach(group, group_layers)
        for alike in group_by_device_and_dtype(group_layers):
            parameters = [layer.parameter for layer in alike]
            lrs = [self._layer_lr(group, layer) for layer in alike]
            steps = decayed_gradients(group, alike)
            torch._foreach_mul_(steps, lrs)
            if momentum:
                buffers = [layer.buffer("momentum_buffer") for layer in alike]
                torch._foreach_mul_(buffers, momentum)
                torch._foreach_add_(buffers, steps)
                if group["nesterov"]:
                    torch._foreach_add_(steps, buffers, alpha=momentum)
                else:
                    steps = buffers
            torch._foreach_add_(parameters, steps, alpha=-lr_after_momentum(group))


def _kernel_tensors(group: Group, group_layers: list[LayerTensors]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return parameters, gradients and, where there is momentum, its buffers."""
    buffers = [layer.buffer("momentum_buffer") for layer in group_layers] if group["momentum"] else []
    return [layer.parameter for layer in group_layers], [layer.gradient for layer in group_layers], buffers
