"""LAMB: Adam's direction at a learning rate for each layer in proportion to ‖w‖/‖u‖ (You et al. 2020, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from bigbatch import layers, parts
from bigbatch.optim._layerwise import (
    Group,
    Layer,
    LayerWise,
    Tensors,
    alike_on_device,
    as_rows,
    choose_path,
    fit_kernel,
    norm,
    norms_by_sweeps,
    norms_of_shards,
    number,
    row_norms,
    split_by_fit,
)

# a step count at which β**step is 0: the kernel then corrects nothing
NO_CORRECTION = 1e18


class Config(parts.Config):
    lr: float = Field(0.01, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-6, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    bias_correction: bool = True
    trust_clip: bool = False
    exclude: layers.RuleName = "one_dimensional"


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> LAMB:
    return LAMB(named_parameters, **config.model_dump(exclude={"name"}))


class LAMB(LayerWise):
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
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        bias_correction: bool = True,
        trust_clip: bool = False,
        exclude: layers.Rule = "one_dimensional",
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "bias_correction": bias_correction,
            "trust_clip": trust_clip,
            "exclude": exclude,
            "foreach": foreach,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _check(self, group: Group) -> None:
        super()._check(group)
        if len(group["betas"]) != 2:
            raise ValueError(f"betas must be two numbers, but is {group['betas']!r}")
        for beta in group["betas"]:
            number("betas", beta, below=1.0)
        number("eps", group["eps"], above=0.0)

    def _begin(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        state["step"] = torch.tensor(0.0, dtype=torch.float32)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    def _move(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        sharded: list[tuple[Group, Layer, Tensor]] = []
        for group, group_layers in gathered:
            if not group_layers:
                continue
            torch._foreach_add_([layer.state["step"] for layer in group_layers], 1.0)
            path = choose_path(group, group_layers)
            whole = [layer for layer in group_layers if not layer.sharded]
            if path == "foreach":
                _move_by_sweeps(group, whole)
            elif path == "fused":
                _move_fused(group, whole)
            else:
                for layer in whole:
                    _apply(group, layer, _plain_step(group, layer))
            find_step = _fused_step if path == "fused" else _plain_step
            sharded += [(group, layer, find_step(group, layer)) for layer in group_layers if layer.sharded]
        if sharded:
            _move_sharded(sharded)


def trust_ratio(weight_norm: float, step_norm: float, *, clip: bool) -> float:
    """φ(‖w‖)/‖u‖ of Algorithm 2 with φ the identity. A zero norm gives 1."""
    if weight_norm == 0 or step_norm == 0:
        return 1.0
    return min(weight_norm / step_norm, 1.0) if clip else weight_norm / step_norm


# What is called a step below is −u, so that it can be added.


def _apply(group: Group, layer: Layer, step: Tensor) -> None:
    lr = float(group["lr"])
    if not layer.excluded:
        found = layer.norms or (norm(layer.parameter), norm(step))
        lr *= trust_ratio(*found, clip=group["trust_clip"])
    layer.parameter.add_(step, alpha=lr)


def _move_sharded(sharded: list[tuple[Group, Layer, Tensor]]) -> None:
    """All groups' shards at once, so that ranks are asked once; until then all their steps are kept."""
    scaled = [(layer, step) for _, layer, step in sharded if not layer.excluded]
    found = norms_of_shards([layer.whole for layer, _ in scaled], [(layer.parameter, step) for layer, step in scaled])
    for (layer, _), layer_norms in zip(scaled, found, strict=True):
        layer.norms = layer_norms
    for group, layer, step in sharded:
        _apply(group, layer, step)


def _move_fused(group: Group, whole: list[Layer]) -> None:
    by_dtype, odd = split_by_fit(whole, "exp_avg", "exp_avg_sq")
    for fitting in by_dtype:
        one_by_one, rows = as_rows(fitting)
        # one piece of memory for all steps: fresh memory for each would cost more than the arithmetic
        scratch = fitting[0].parameter.new_empty(max((layer.parameter.numel() for layer in one_by_one), default=0))
        for layer in one_by_one:
            parameter = layer.parameter
            step = scratch[: parameter.numel()].view(parameter.shape)
            _apply(group, layer, _fused_step(group, layer, step))
        for alike in rows:
            _move_rows(group, alike)
    for layer in odd:
        _apply(group, layer, _plain_step(group, layer))


def _move_rows(group: Group, alike: list[Layer]) -> None:
    parameters = [layer.parameter for layer in alike]
    stack = torch.stack(parameters)
    weight_norms = row_norms(stack)
    steps = stack.mul_(-float(group["weight_decay"])).unbind()
    _call_kernel(group, alike, steps)
    lrs = [
        1.0 if layer.excluded else trust_ratio(weight_norm, step_norm, clip=group["trust_clip"])
        for layer, weight_norm, step_norm in zip(alike, weight_norms, row_norms(stack), strict=True)
    ]
    column = torch.tensor(lrs, dtype=stack.dtype).mul_(float(group["lr"]))
    stack.mul_(column.view(-1, *[1] * (stack.ndim - 1)))
    torch._foreach_add_(parameters, steps)


def _fused_step(group: Group, layer: Layer, space: Tensor | None = None) -> Tensor:
    if not fit_kernel([layer], "exp_avg", "exp_avg_sq"):
        return _plain_step(group, layer)
    step = torch.mul(layer.parameter, -float(group["weight_decay"]), out=space)
    _call_kernel(group, [layer], [step])
    return step


def _call_kernel(group: Group, alike: list[Layer], steps: Tensors) -> None:
    """torch's Adam kernel at learning rate 1 on −βw in place of the weights leaves −βw − m̂/(√v̂ + eps)."""
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


def _corrections(group: Group, layer: Layer) -> tuple[float, float]:
    if not group["bias_correction"]:
        return 1.0, 1.0
    count = layer.state["step"].item()
    beta1, beta2 = group["betas"]
    return 1.0 - beta1**count, (1.0 - beta2**count) ** 0.5


def _plain_step(group: Group, layer: Layer) -> Tensor:
    beta1, beta2 = group["betas"]
    gradient = layer.gradient.neg() if group["maximize"] else layer.gradient
    mean = layer.buffer("exp_avg").lerp_(gradient, 1.0 - beta1)
    square = layer.buffer("exp_avg_sq").mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    mean_correction, root_correction = _corrections(group, layer)
    denominator = square.sqrt().div_(root_correction).add_(group["eps"])
    step = layer.parameter * -float(group["weight_decay"])
    return step.addcdiv_(mean, denominator, value=-1.0 / mean_correction)


def _move_by_sweeps(group: Group, whole: list[Layer]) -> None:
    for alike in alike_on_device(whole):
        steps = _steps_by_sweeps(group, alike)
        scaled = [(layer, step) for layer, step in zip(alike, steps, strict=True) if not layer.excluded]
        weight_norms = norms_by_sweeps([layer.parameter for layer, _ in scaled])
        step_norms = norms_by_sweeps([step for _, step in scaled])
        for (layer, _), *layer_norms in zip(scaled, weight_norms, step_norms, strict=True):
            layer.norms = layer_norms
        for layer, step in zip(alike, steps, strict=True):
            _apply(group, layer, step)


def _steps_by_sweeps(group: Group, alike: list[Layer]) -> list[Tensor]:
    beta1, beta2 = group["betas"]
    gradients = [layer.gradient for layer in alike]
    if group["maximize"]:
        gradients = list(torch._foreach_neg(gradients))
    means = [layer.buffer("exp_avg") for layer in alike]
    squares = [layer.buffer("exp_avg_sq") for layer in alike]
    torch._foreach_lerp_(means, gradients, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
    corrections = [_corrections(group, layer) for layer in alike]
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_div_(denominators, [root for _, root in corrections])
    torch._foreach_add_(denominators, group["eps"])
    steps = list(torch._foreach_mul([layer.parameter for layer in alike], -float(group["weight_decay"])))
    torch._foreach_addcdiv_(steps, means, denominators, [-1.0 / mean for mean, _ in corrections])
    return steps
