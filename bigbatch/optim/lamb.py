"""LAMB: Adam's direction with a learning rate per layer in proportion to ‖w‖/‖u‖ (You et al. 2020, Algorithm 2)."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group, LayersByGroup, LayerTensors, LayerWiseOptimizer
from bigbatch.optim.layerwise.kernels import (
    choose_implementation,
    fits_fused_kernel,
    group_by_device_and_dtype,
    split_by_kernel_fit,
    stack_small_layers,
)
from bigbatch.optim.layerwise.norms import foreach_norms, norm, stacked_norms
from bigbatch.optim.layerwise.options import Momentum, config_from_constructor, constructor_options
from bigbatch.optim.layerwise.shards import sharded_norms

# a step count at which β**step is 0, so that the kernel corrects nothing
NO_CORRECTION = 1e18


class LAMB(LayerWiseOptimizer):
    """Layer-wise adaptive moments, Algorithm 2: u = m̂/(√v̂ + eps) + βw; w ← w − lr·(‖w‖/‖u‖)·u.

        optimizer = LAMB(model.parameters(), lr=0.01, weight_decay=0.01)
        loss(model(inputs), targets).backward()
        optimizer.step()

    φ of the paper is the identity. The ratio is 1 where ‖w‖ or ‖u‖ is zero, so that zero-initialised tensors move.
    `bias_correction`: False leaves out the division by 1 − βᵗ, as the paper's own code did.
    `trust_clip`: the ratio is at most 1.
    `exclude`: tensors whose ratio is 1, so that they take Adam's step at `lr` as it is; independent of weight decay.
    `foreach`, `fused`: as in torch.optim.Adam; None chooses what is fast on the device. `fused` is for the CPU.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.01,
        betas: tuple[Momentum, Momentum] = (0.9, 0.999),
        eps: PositiveFloat = 1e-6,
        weight_decay: NonNegativeFloat = 0.0,
        maximize: bool = False,
        *,
        bias_correction: bool = True,
        trust_clip: bool = False,
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, constructor_options(locals()))

    def _init_state(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        state["step"] = torch.tensor(0.0, dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def _update(self, collected: LayersByGroup) -> None:
        sharded: list[tuple[Group, LayerTensors, Tensor]] = []
        for group, group_layers in collected:
            if not group_layers:
                continue
            torch._foreach_add_([layer.state["step"] for layer in group_layers], 1.0)
            implementation = choose_implementation(group, group_layers)
            whole = [layer for layer in group_layers if not layer.sharded]
            if implementation == "foreach":
                _foreach_update(group, whole)
            elif implementation == "fused":
                _fused_update(group, whole)
            else:
                for layer in whole:
                    _apply_step(group, layer, _single_tensor_step(group, layer))
            compute_step = _fused_step if implementation == "fused" else _single_tensor_step
            sharded += [(group, layer, compute_step(group, layer)) for layer in group_layers if layer.sharded]
        if sharded:
            _update_sharded(sharded)


def trust_ratio(weight_norm: float, step_norm: float, *, clip: bool) -> float:
    """φ(‖w‖)/‖u‖ of Algorithm 2 with φ the identity. A zero norm gives 1."""
    if weight_norm == 0 or step_norm == 0:
        return 1.0
    return min(weight_norm / step_norm, 1.0) if clip else weight_norm / step_norm


# A step below is −u, so that it is added to the weights.


def _apply_step(group: Group, layer: LayerTensors, step: Tensor) -> None:
    lr = float(group["lr"])
    if not layer.excluded:
        found = layer.norms or (norm(layer.parameter), norm(step))
        lr *= trust_ratio(*found, clip=group["trust_clip"])
    layer.parameter.add_(step, alpha=lr)


def _update_sharded(sharded: list[tuple[Group, LayerTensors, Tensor]]) -> None:
    """Update the shards of all groups with one all-reduce; until then all their steps are kept."""
    scaled = [(layer, step) for _, layer, step in sharded if not layer.excluded]
    found = sharded_norms(
        [layer.full_parameter for layer, _ in scaled], [(layer.parameter, step) for layer, step in scaled]
    )
    for (layer, _), layer_norms in zip(scaled, found, strict=True):
        layer.norms = layer_norms
    for group, layer, step in sharded:
        _apply_step(group, layer, step)


def _fused_update(group: Group, whole: list[LayerTensors]) -> None:
    by_dtype, others = split_by_kernel_fit(whole, "exp_avg", "exp_avg_sq")
    for fitting in by_dtype:
        one_by_one, stacks = stack_small_layers(fitting)
        # one buffer for all steps: fresh memory for each would cost more than the arithmetic
        scratch = fitting[0].parameter.new_empty(max((layer.parameter.numel() for layer in one_by_one), default=0))
        for layer in one_by_one:
            parameter = layer.parameter
            step = scratch[: parameter.numel()].view(parameter.shape)
            _apply_step(group, layer, _fused_step(group, layer, step))
        for alike in stacks:
            _update_stack(group, alike)
    for layer in others:
        _apply_step(group, layer, _single_tensor_step(group, layer))


def _update_stack(group: Group, alike: list[LayerTensors]) -> None:
    parameters = [layer.parameter for layer in alike]
    stack = torch.stack(parameters)
    weight_norms = stacked_norms(stack)
    steps = stack.mul_(-float(group["weight_decay"])).unbind()
    _call_fused_adam(group, alike, steps)
    lrs = [
        1.0 if layer.excluded else trust_ratio(weight_norm, step_norm, clip=group["trust_clip"])
        for layer, weight_norm, step_norm in zip(alike, weight_norms, stacked_norms(stack), strict=True)
    ]
    column = torch.tensor(lrs, dtype=stack.dtype).mul_(float(group["lr"]))
    stack.mul_(column.view(-1, *[1] * (stack.ndim - 1)))
    torch._foreach_add_(parameters, steps)


def _fused_step(group: Group, layer: LayerTensors, space: Tensor | None = None) -> Tensor:
    if not fits_fused_kernel([layer], "exp_avg", "exp_avg_sq"):
        return _single_tensor_step(group, layer)
    step = torch.mul(layer.parameter, -float(group["weight_decay"]), out=space)
    _call_fused_adam(group, [layer], [step])
    return step


def _call_fused_adam(group: Group, alike: list[LayerTensors], steps: list[Tensor] | tuple[Tensor, ...]) -> None:
    """Run torch's Adam kernel with learning rate 1 on −βw in place of the weights: −βw − m̂/(√v̂ + eps)."""
    counts = [layer.state["step"] for layer in alike]
    beta1, beta2 = group["betas"]
    torch._fused_adam_(
        steps,
        [layer.gradient for layer in alike],
        [layer.buffer("exp_avg") for layer in alike],
        [layer.buffer("exp_avg_sq") for layer in alike],
        [],
        counts if group["bias_correction"] else [torch.tensor(NO_CORRECTION)] * len(alike),
        lr=1.0,
        beta1=beta1,
        beta2=beta2,
        weight_decay=0.0,
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )


def _bias_corrections(group: Group, layer: LayerTensors) -> tuple[float, float]:
    if not group["bias_correction"]:
        return 1.0, 1.0
    count = layer.state["step"].item()
    beta1, beta2 = group["betas"]
    return 1.0 - beta1**count, (1.0 - beta2**count) ** 0.5


def _single_tensor_step(group: Group, layer: LayerTensors) -> Tensor:
    beta1, beta2 = group["betas"]
    gradient = layer.gradient.neg() if group["maximize"] else layer.gradient
    mean = layer.buffer("exp_avg").lerp_(gradient, 1.0 - beta1)
    square = layer.buffer("exp_avg_sq").mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    mean_correction, root_correction = _bias_corrections(group, layer)
    denominator = square.sqrt().div_(root_correction).add_(group["eps"])
    step = layer.parameter * -float(group["weight_decay"])
    return step.addcdiv_(mean, denominator, value=-1.0 / mean_correction)


def _foreach_update(group: Group, whole: list[LayerTensors]) -> None:
    for alike in group_by_device_and_dtype(whole):
        steps = _foreach_steps(group, alike)
        scaled = [(layer, step) for layer, step in zip(alike, steps, strict=True) if not layer.excluded]
        weight_norms = foreach_norms([layer.parameter for layer, _ in scaled])
        step_norms = foreach_norms([step for _, step in scaled])
        for (layer, _), *layer_norms in zip(scaled, weight_norms, step_norms, strict=True):
            layer.norms = layer_norms
        for layer, step in zip(alike, steps, strict=True):
            _apply_step(group, layer, step)


def _foreach_steps(group: Group, alike: list[LayerTensors]) -> list[Tensor]:
    beta1, beta2 = group["betas"]
    gradients = [layer.gradient for layer in alike]
    if group["maximize"]:
        gradients = list(torch._foreach_neg(gradients))
    means = [layer.buffer("exp_avg") for layer in alike]
    squares = [layer.buffer("exp_avg_sq") for layer in alike]
    torch._foreach_lerp_(means, gradients, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
    corrections = [_bias_corrections(group, layer) for layer in alike]
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_div_(denominators, [root for _, root in corrections])
    torch._foreach_add_(denominators, group["eps"])
    steps = list(torch._foreach_mul([layer.parameter for layer in alike], -float(group["weight_decay"])))
    torch._foreach_addcdiv_(steps, means, denominators, [-1.0 / mean for mean, _ in corrections])
    return steps


Config = config_from_constructor(LAMB)
build = builder_for(LAMB)
