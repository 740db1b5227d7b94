"""LAMB: Adam's direction at a rate for each layer in proportion to ‖w‖/‖u‖ (You et al. 2020, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    alike_on_device,
    choose_path,
    fits_fused,
    norm,
    norms_by_sweeps,
    norms_of_shards,
    number,
)

# what stays in the cache between the direction, its norm and the update
BITE_ELEMENTS = 1 << 18
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
            for bite in _bites(group_layers, everything=path == "foreach"):
                steps = self._steps(group, bite, path)
                if bite[0].sharded:
                    sharded += [(group, layer, step) for layer, step in zip(bite, steps, strict=True)]
                else:
                    self._apply(group, bite, steps, _ratios(group, bite, steps, path))
        if sharded:
            self._apply_sharded(sharded)

    def _steps(self, group: Group, bite: list[Layer], path: str) -> list[Tensor]:
        """−u of each layer; moves the moments."""
        if path == "foreach":
            return _steps_by_sweeps(group, bite)
        if path == "fused":
            return _fused_steps(group, bite)
        return [_plain_step(group, layer) for layer in bite]

    def _apply(self, group: Group, bite: list[Layer], steps: list[Tensor], ratios: list[float]) -> None:
        lr = float(group["lr"])
        for layer, step, ratio in zip(bite, steps, ratios, strict=True):
            layer.parameter.add_(step, alpha=lr * ratio)

    def _apply_sharded(self, sharded: list[tuple[Group, Layer, Tensor]]) -> None:
        scaled = [(layer, step) for _, layer, step in sharded if not layer.excluded]
        found = norms_of_shards(
            [layer.whole for layer, _ in scaled], [(layer.parameter, step) for layer, step in scaled]
        )
        for (layer, _), layer_norms in zip(scaled, found, strict=True):
            layer.norms = layer_norms
        for group, layer, step in sharded:
            ratio = 1.0 if layer.norms is None else trust_ratio(*layer.norms, clip=group["trust_clip"])
            self._apply(group, [layer], [step], [ratio])


def trust_ratio(weight_norm: float, step_norm: float, *, clip: bool) -> float:
    """φ(‖w‖)/‖u‖ of Algorithm 2 with φ the identity. A zero norm gives 1."""
    if weight_norm == 0 or step_norm == 0:
        return 1.0
    return min(weight_norm / step_norm, 1.0) if clip else weight_norm / step_norm


def _ratios(group: Group, bite: list[Layer], steps: list[Tensor], path: str) -> list[float]:
    scaled = [index for index, layer in enumerate(bite) if not layer.excluded]
    ratios = [1.0] * len(bite)
    if scaled:
        weights, scaled_steps = [bite[index].parameter for index in scaled], [steps[index] for index in scaled]
        if path == "foreach":
            weight_norms, step_norms = norms_by_sweeps(weights), norms_by_sweeps(scaled_steps)
        else:
            weight_norms, step_norms = [norm(weight) for weight in weights], [norm(step) for step in scaled_steps]
        for index, weight_norm, step_norm in zip(scaled, weight_norms, step_norms, strict=True):
            ratios[index] = trust_ratio(weight_norm, step_norm, clip=group["trust_clip"])
    return ratios


def _bites(group_layers: list[Layer], everything: bool) -> Iterator[list[Layer]]:
    """Runs of layers that go through a step together: of one kind, and small enough for the cache."""
    kinds = alike_on_device(group_layers)
    for kind in kinds:
        for sharded in (False, True):
            bite: list[Layer] = []
            elements = 0
            for layer in kind:
                if layer.sharded is not sharded:
                    continue
                count = layer.parameter.numel()
                if bite and not everything and elements + count > BITE_ELEMENTS:
                    yield bite
                    bite, elements = [], 0
                bite.append(layer)
                elements += count
            if bite:
                yield bite


def _fused_steps(group: Group, bite: list[Layer]) -> list[Tensor]:
    """torch's Adam kernel at rate 1 on −βw in place of the weights leaves −βw − m̂/(√v̂ + eps)."""
    means = [layer.buffer("exp_avg") for layer in bite]
    squares = [layer.buffer("exp_avg_sq") for layer in bite]
    for layer, mean, square in zip(bite, means, squares, strict=True):
        if not fits_fused(layer.parameter, layer.gradient, mean, square):
            return [_plain_step(group, layer) for layer in bite]
    steps = list(torch._foreach_mul([layer.parameter for layer in bite], -float(group["weight_decay"])))
    if group["bias_correction"]:
        counts = [layer.state["step"] for layer in bite]
    else:
        counts = [torch.tensor(NO_CORRECTION)] * len(bite)
    beta1, beta2 = group["betas"]
    torch._fused_adam_(
        steps,
        [layer.gradient for layer in bite],
        means,
        squares,
        [],
        counts,
        lr=1.0,
        beta1=beta1,
        beta2=beta2,
        weight_decay=0.0,
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )
    return steps


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


def _steps_by_sweeps(group: Group, bite: list[Layer]) -> list[Tensor]:
    beta1, beta2 = group["betas"]
    gradients = [layer.gradient for layer in bite]
    if group["maximize"]:
        gradients = list(torch._foreach_neg(gradients))
    means = [layer.buffer("exp_avg") for layer in bite]
    squares = [layer.buffer("exp_avg_sq") for layer in bite]
    torch._foreach_lerp_(means, gradients, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
    corrections = [_corrections(group, layer) for layer in bite]
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_div_(denominators, [root for _, root in corrections])
    torch._foreach_add_(denominators, group["eps"])
    steps = list(torch._foreach_mul([layer.parameter for layer in bite], -float(group["weight_decay"])))
    torch._foreach_addcdiv_(steps, means, denominators, [-1.0 / mean for mean, _ in corrections])
    return steps
