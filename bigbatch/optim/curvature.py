"""CBLR: a lr for each weight from the radius of curvature of the loss (Gao & Zhong 2020, eqs. 9-11, 16-17)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from bigbatch import layers, parts, rng
from bigbatch.optim._layerwise import Group, Layer, LayerWise, direction, is_sharded, number, one_of

Hessian = Literal["estimate", "hutchinson", "exact"]


class Config(parts.Config):
    lr: float = Field(0.03, ge=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    hessian: Hessian = "estimate"
    samples: int = Field(1, ge=1)
    max_radius: float | None = Field(None, gt=0)
    seed: int = Field(0, ge=0)
    exclude: layers.RuleName = "one_dimensional"


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> Curvature:
    return Curvature(named_parameters, **config.model_dump(exclude={"name"}))


def radius_from_weight(weight: Tensor, gradient: Tensor) -> Tensor:
    """Eq. 17, R ≈ |w/g|: eq. 16 with the minimum at w = 0. 1 where either is zero."""
    radius = (weight / gradient).abs()
    return torch.where((weight == 0) | (gradient == 0), 1.0, radius)


def radius_from_hessian(gradient: Tensor, second_derivative: Tensor) -> Tensor:
    """Eq. 9, R = |(1 + g²)^(3/2) / h|. 1 where h is zero."""
    radius = (1 + gradient.square()).pow(1.5) / second_derivative.abs()
    return torch.where(second_derivative == 0, 1.0, radius)


class Curvature(LayerWise):
    """Curvature-based learning rate, eqs. 9-11: w ← w − lr·R·(g + βw), R the radius of curvature of each weight.

    `hessian` says where R comes from:

    - "estimate" (eq. 17): |w/(g + βw)|, so that each step is lr·|w| against the gradient's sign. It needs no more
      than gradients, but is a trust ratio rather than a curvature: layer medians can be off by 100x.

          optimizer = Curvature(model.parameters(), lr=0.01)
          loss(model(inputs), targets).backward()
          optimizer.step()

    - "hutchinson": the diagonal of the Hessian as the mean of z·Hz over `samples` random sign vectors z, which are
      a pure function of (`seed`, step).
    - "exact": one Hessian-vector product for each weight; for small models.

      Both differentiate twice, so the closure is to return the loss *without* calling backward(). The gradient is
      taken there too; `.grad` is neither read nor written, so gradient clipping and DDP have no part in it.

          optimizer = Curvature(model.parameters(), lr=0.1, hessian="hutchinson")
          optimizer.step(lambda: loss(model(inputs), targets))

    `max_radius` bounds R. None is no bound for "estimate", whose steps are bounded by lr·|w| as it is, and 1 for the
    others, whose R grows without limit where the loss is flat: no weight then moves further than plain SGD would.
    `momentum` is not in the paper: v ← m·v + lr·R·(g + βw); w ← w − v.
    R is 1 where it is not defined (w, g or h is zero). `exclude`: tensors that take `lr` as it is.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        hessian: Hessian = "estimate",
        samples: int = 1,
        max_radius: float | None = None,
        seed: int = 0,
        exclude: layers.Rule = "one_dimensional",
    ) -> None:
        one_of("hessian", hessian, ("estimate", "hutchinson", "exact"))
        # a closure serves all groups at once, so how it is differentiated is no option of a group
        self.hessian = hessian
        self.samples = int(samples)
        self.seed = seed
        self.needs_closure = hessian != "estimate"
        if samples < 1:
            raise ValueError(f"samples must be at least 1, but is {samples!r}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "max_radius": max_radius,
            "steps": 0,
            "exclude": exclude,
            "foreach": None,
            "fused": None,
        }
        super().__init__(params, defaults)

    def _check(self, group: Group) -> None:
        super()._check(group)
        number("momentum", group["momentum"], below=1.0)
        if group["max_radius"] is not None:
            number("max_radius", group["max_radius"], above=0.0)
        if self.needs_closure and any(is_sharded(parameter) for parameter in group["params"]):
            raise ValueError(f"hessian='{self.hessian}' does not take sharded parameters: use hessian='estimate'")

    def _begin(self, group: Group, parameter: Tensor, state: dict[str, Any]) -> None:
        if group["momentum"]:
            state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. With "hutchinson" and "exact" the closure returns the loss and does not call backward()."""
        if not self.needs_closure:
            return super().step(closure)
        if closure is None:
            raise ValueError(
                f"Curvature(hessian='{self.hessian}').step() needs a closure: pass a function that returns the loss "
                "without calling backward()"
            )
        with torch.enable_grad():
            loss = closure()
            measured = self._differentiate(loss)
        for group, layer, second_derivative in measured:
            self._move_layer(group, layer, second_derivative)
        for group in self.param_groups:
            group["steps"] += 1
        return loss.detach()

    def _move(self, gathered: list[tuple[Group, list[Layer]]]) -> None:
        for group, group_layers in gathered:
            for layer in group_layers:
                self._move_layer(group, layer, None)

    def _move_layer(self, group: Group, layer: Layer, second_derivative: Tensor | None) -> None:
        step = direction(group, layer)
        if not layer.excluded:
            step.mul_(self._radius(group, layer, step, second_derivative))
        step.mul_(float(group["lr"]))
        if group["momentum"]:
            step = layer.buffer("momentum_buffer").mul_(group["momentum"]).add_(step)
        layer.parameter.sub_(step)

    def _radius(self, group: Group, layer: Layer, gradient: Tensor, second_derivative: Tensor | None) -> Tensor:
        limit = group["max_radius"]
        if second_derivative is None:
            return radius_from_weight(layer.parameter, gradient).clamp_(max=math.inf if limit is None else limit)
        sign = -1.0 if group["maximize"] else 1.0
        radius = radius_from_hessian(gradient, sign * second_derivative + group["weight_decay"])
        return radius.clamp_(max=1.0 if limit is None else limit)

    def _differentiate(self, loss: Tensor) -> list[tuple[Group, Layer, Tensor | None]]:
        """Each layer with its gradient and the diagonal of its Hessian, which excluded ones do not need."""
        if not isinstance(loss, Tensor) or not loss.requires_grad:
            raise ValueError("the closure must return the loss as a tensor with a graph: do not call backward() in it")
        entries = [
            (group, parameter, excluded)
            for group in self.param_groups
            for parameter, excluded in zip(group["params"], group["excluded"], strict=True)
            if parameter.requires_grad
        ]
        gradients = torch.autograd.grad(loss, [entry[1] for entry in entries], create_graph=True, allow_unused=True)
        used = [(*entry, gradient) for entry, gradient in zip(entries, gradients, strict=True) if gradient is not None]
        if not used:
            raise ValueError("Curvature.step() found no parameter that the loss depends on: check the closure")
        scaled = [(parameter, gradient) for _, parameter, excluded, gradient in used if not excluded]
        diagonals = iter(self._diagonals(scaled))
        measured = []
        for group, parameter, excluded, gradient in used:
            state = self.state[parameter]
            if not state:
                self._begin(group, parameter, state)
            layer = Layer(parameter, gradient.detach(), state, excluded)
            measured.append((group, layer, None if excluded else next(diagonals)))
        return measured

    def _diagonals(self, scaled: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        if self.hessian == "exact":
            return [exact_diagonal(parameter, gradient) for parameter, gradient in scaled]
        step = self.param_groups[0]["steps"]
        total = [torch.zeros_like(parameter) for parameter, _ in scaled]
        for sample in range(self.samples):
            key = int(rng.bits(self.seed, step, sample)[0] >> 1)
            for diagonal, estimate in zip(total, hutchinson_diagonal(scaled, key), strict=True):
                diagonal.add_(estimate, alpha=1.0 / self.samples)
        return total


def hutchinson_diagonal(scaled: list[tuple[Tensor, Tensor]], key: int) -> list[Tensor]:
    """z·Hz for one vector z of random signs over all parameters: the diagonal of H in the mean."""
    # a generator of its own: the model's dropout must not feel that curvature was measured
    generator = torch.Generator().manual_seed(key)
    signs = [
        (torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1).to(parameter) for parameter, _ in scaled
    ]
    pairs = [(gradient, sign) for (_, gradient), sign in zip(scaled, signs, strict=True) if gradient.requires_grad]
    if not pairs:
        return [torch.zeros_like(parameter) for parameter, _ in scaled]
    products = torch.autograd.grad(
        [gradient for gradient, _ in pairs],
        [parameter for parameter, _ in scaled],
        [sign for _, sign in pairs],
        retain_graph=True,
        materialize_grads=True,
    )
    return [sign * product for sign, product in zip(signs, products, strict=True)]


def exact_diagonal(parameter: Tensor, gradient: Tensor) -> Tensor:
    """∂²L/∂w², one Hessian-vector product for each weight."""
    diagonal = torch.zeros_like(parameter)
    if not gradient.requires_grad:
        return diagonal
    flat_gradient, flat_diagonal = gradient.reshape(-1), diagonal.view(-1)
    for index in range(parameter.numel()):
        (row,) = torch.autograd.grad(flat_gradient[index], parameter, retain_graph=True, materialize_grads=True)
        flat_diagonal[index] = row.reshape(-1)[index]
    return diagonal.detach()
