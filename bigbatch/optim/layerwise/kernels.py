"""Which implementation updates which layers: torch's fused kernels, its multi-tensor operations, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Literal

import torch
from torch import Tensor

from bigbatch.optim.layerwise.base import FUSED_DTYPES, Group, LayerTensors

# Below this a call costs more than its arithmetic: norms of equally shaped layers are then taken of one stack ...
SMALL_LAYER_ELEMENTS = 1 << 13
# ... which stays in the cache, and in memory that the allocator keeps: fresh pages would cost more than is saved.
STACK_ELEMENTS = 1 << 16
# 1 − (1 − lr) has a relative error of 1e-16/lr
SMALLEST_FUSED_LR = 1e-9
# updates parameters from gradients and momentum buffers with one learning rate
Kernel = Callable[[list[Tensor], list[Tensor], list[Tensor], float], None]
Implementation = Literal["fused", "foreach", "single_tensor"]
_DTYPE, _IS_CPU = attrgetter("dtype"), attrgetter("is_cpu")


def choose_implementation(group: Group, group_layers: Sequence[LayerTensors]) -> Implementation:
    """Return the implementation that the group's options ask for or that fits the device."""
    if group["foreach"]:
        return "foreach"
    on_cpu = all(map(_IS_CPU, [layer.parameter for layer in group_layers]))
    if on_cpu and group["fused"] is not False and not group.get("nesterov"):
        return "fused"
    return "single_tensor" if on_cpu or group["foreach"] is False else "foreach"


def fits_fused_kernel(group_layers: Sequence[LayerTensors], *buffers: str) -> bool:
    """Whether one call of a fused kernel can update these layers: one dtype and, as kernels walk memory, no gaps."""
    parameters = [layer.parameter for layer in group_layers]
    gradients = [layer.gradient for layer in group_layers]
    held = [layer.state[name] for name in buffers for layer in group_layers if name in layer.state]
    dtypes = set(map(_DTYPE, parameters)).union(map(_DTYPE, gradients))
    contiguous = all(map(Tensor.is_contiguous, [*parameters, *gradients, *held]))
    return contiguous and len(dtypes) == 1 and dtypes.issubset(FUSED_DTYPES)


def split_by_kernel_fit(
    group_layers: list[LayerTensors], *buffers: str
) -> tuple[list[list[LayerTensors]], list[LayerTensors]]:
    """Return the layers that fused kernels can update, grouped by dtype, and the others."""
    # all at once first: checking layer by layer takes as long as the norms do
    if fits_fused_kernel(group_layers, *buffers):
        return [group_layers], []
    by_dtype: dict[torch.dtype, list[LayerTensors]] = {}
    others: list[LayerTensors] = []
    for layer in group_layers:
        fits = fits_fused_kernel([layer], *buffers)
        (by_dtype.setdefault(layer.parameter.dtype, []) if fits else others).append(layer)
    return list(by_dtype.values()), others


def stack_small_layers(group_layers: Iterable[LayerTensors]) -> tuple[list[LayerTensors], list[list[LayerTensors]]]:
    """Return the layers to update one by one, and stacks of small layers of one shape."""
    one_by_one: list[LayerTensors] = []
    by_shape: dict[torch.Size, list[LayerTensors]] = {}
    for layer in group_layers:
        if layer.sharded:
            one_by_one.append(layer)
        else:
            by_shape.setdefault(layer.parameter.shape, []).append(layer)
    stacks = []
    for shape, alike in by_shape.items():
        if len(alike) > 1 and 0 < shape.numel() <= SMALL_LAYER_ELEMENTS:
            count = max(2, STACK_ELEMENTS // shape.numel())
            stacks += [alike[start : start + count] for start in range(0, len(alike), count)]
        else:
            one_by_one += alike
    return one_by_one, stacks


def group_by_device_and_dtype(group_layers: Iterable[LayerTensors]) -> list[list[LayerTensors]]:
    """Group layers as multi-tensor operations need them."""
    groups: dict[tuple[torch.device, torch.dtype], list[LayerTensors]] = {}
    for layer in group_layers:
        groups.setdefault((layer.parameter.device, layer.parameter.dtype), []).append(layer)
    return list(groups.values())


def lr_before_momentum(group: Group) -> float:
    """Return the factor of the learning rate that goes into the momentum ..."""
    return 1.0 if group.get("momentum_form") == "outside" else float(group["lr"])


def lr_after_momentum(group: Group) -> float:
    """... and the factor that multiplies the momentum in the update of the weights."""
    return float(group["lr"]) if group.get("momentum_form") == "outside" else 1.0


def fused_sgd_kernel(group: Group) -> Kernel:
    """Return torch's fused SGD kernel with a group's options.

    The kernel's factor 1 − dampening applies the learning rate before the momentum. Where the two subtractions would
    leave fewer digits of it than float32 has, the same is computed without the kernel.
    """
    momentum, final_lr = float(group["momentum"]), lr_after_momentum(group)
    weight_decay, maximize = float(group["weight_decay"]), group["maximize"]

    def update(parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], lr: float) -> None:
        if momentum and lr < SMALLEST_FUSED_LR:
            steps = torch._foreach_mul(gradients, -lr if maximize else lr)
            torch._foreach_add_(steps, parameters, alpha=lr * weight_decay)
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, steps)
            torch._foreach_add_(parameters, buffers, alpha=-final_lr)
            return
        torch._fused_sgd_(
            parameters,
            gradients,
            buffers,
            weight_decay=weight_decay,
            momentum=momentum,
            # without momentum the kernel has no dampening
            lr=final_lr if momentum else final_lr * lr,
            dampening=1.0 - lr if momentum else 0.0,
            nesterov=False,
            maximize=maximize,
            is_first_step=False,
        )

    return update


def decayed_gradient(group: Group, layer: LayerTensors) -> Tensor:
    """Return g + βw as a new tensor: the gradient itself is never changed."""
    gradient = layer.gradient.neg() if group["maximize"] else layer.gradient.clone()
    return gradient.add_(layer.parameter, alpha=group["weight_decay"]) if group["weight_decay"] else gradient


def decayed_gradients(group: Group, group_layers: list[LayerTensors]) -> list[Tensor]:
    """Return g + βw of many layers as new tensors."""
    sign = -1.0 if group["maximize"] else 1.0
    found = list(torch._foreach_mul([layer.gradient for layer in group_layers], sign))
    if group["weight_decay"]:
        torch._foreach_add_(found, [layer.parameter for layer in group_layers], alpha=group["weight_decay"])
    return found
