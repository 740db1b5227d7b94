"""CBLR: a learning rate per weight from the loss's radius of curvature (Gao & Zhong 2020, eqs. 9-11, 16-17)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bigbatch import layers, rng
from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group, LayersByGroup, LayerTensors, LayerWiseOptimizer
from bigbatch.optim.layerwise.kernels import decayed_gradient
from bigbatch.optim.layerwise.options import Momentum, check_options, config_from_constructor
from bigbatch.optim.layerwise.shards import is_sharded

Hessian = Literal["estimate", "hutchinson", "exact"]


def radius_from_weight(weight: Tensor, gradient: Tensor) -> Tensor:
    """Eq. 17, R ≈ |w/g|: eq. 16 with the minimum at w = 0. 1 where either is zero."""
    radius = (weight / gradient).abs()
    return torch.where((weight == 0) | (gradient == 0), 1.0, radius)


def radius_from_hessian(gradient: Tensor, second_derivative: Tensor) -> Tensor:
    """Eq. 9, R = |(1 + g²)^(3/2) / h|. 1 where h is zero."""
    radius = (1 + gradient.square()).pow(1.5) / second_derivative.abs()
    return torch.where(second_derivative == 0, 1.0, radius)


class Curvature(LayerWiseOptimizer):
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

      Both differentiate twice, so the closure must return the loss *without* calling backward(). `.grad` is neither
      read nor written, so gradient clipping and DDP have no effect.

          optimizer = Curvature(model.parameters(), lr=0.1, hessian="hutchinson")
          optimizer.step(lambda: loss(model(inputs), targets))

    `max_radius` bounds R. None is no bound for "estimate", whose steps are bounded by lr·|w| as it is, and 1 for the
    others, whose R grows without limit where the loss is flat: no weight then moves further than plain SGD would.
    `momentum` is not in the paper: v ← m·v + lr·R·(g + βw); w ← w − v.
    R is 1 where it is not defined (w, g or h is zero). `exclude`: tensors that take `lr` as it is.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 0.03,
        momentum: Momentum = 0.0,
        weight_decay: NonNegativeFloat = 0.0,
        maximize: bool = False,
        *,
        hessian: Hessian = "estimate",
        samples: PositiveInt = 1,
        max_radius: PositiveFloat | None = None,
        seed: NonNegativeInt = 0,
        exclude: layers.Rule = "one_dimensional",
    ) -> None:
        check_options(Curvature, {"hessian": hessian, "samples": samples, "seed": seed})
        # one closure serves all groups, so these are not options of a group
        self.hessian = hessian
        self.samples = int(samples)
        self.seed = seed
        self.needs_closure = hessian != "estimate"
        own = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "maximize": maximize, "exclude": exclude}
        super().__init__(params, own | {"max_radius": max_radius, "steps": 0, "foreach": None, "fused": None})

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if self.needs_closure and any(is_sharded(parameter) for parameter in group["params"]):
            raise ValueError(f"hessian='{self.hessian}' does not support sharded parameters: use hessian='estimate'")

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
            self._update_layer(group, layer, second_derivative)
        for group in self.param_groups:
            group["steps"] += 1
        return loss.detach()

    def _update(self, collected: LayersByGroup) -> None:
        for group, group_layers in collected:
            for layer in group_layers:
                self._update_layer(group, layer, None)

    def _update_layer(self, group: Group, layer: LayerTensors, second_derivative: Tensor | None) -> None:
        step = decayed_gradient(group, layer)
        if not layer.excluded:
            step.mul_(self._clamped_radius(group, layer, step, second_derivative))
        step.mul_(float(group["lr"]))
        if group["momentum"]:
            step = layer.buffer("momentum_buffer").mul_(group["momentum"]).add_(step)
        layer.parameter.sub_(step)

    def _clamped_radius(
        self, group: Group, layer: LayerTensors, gradient: Tensor, second_derivative: Tensor | None
    ) -> Tensor:
        limit = group["max_radius"]
        if second_derivative is None:
            return radius_from_weight(layer.parameter, gradient).clamp_(max=math.inf if limit is None else limit)
        sign = -1.0 if group["maximize"] else 1.0
        radius = radius_from_hessian(gradient, sign * second_derivative + group["weight_decay"])
        return radius.clamp_(max=1.0 if limit is None else limit)

    def _differentiate(self, loss: Tensor) -> list[tuple[Group, LayerTensors, Tensor | None]]:
        """Return each layer with its gradient and its diagonal of the Hessian (None for excluded layers)."""
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
        diagonals = iter(self._hessian_diagonals(scaled))
        measured = []
        for group, parameter, excluded, gradient in used:
            state = self.state[parameter]
            if not state:
                self._init_state(group, parameter, state)
            layer = LayerTensors(parameter, gradient.detach(), state, excluded)
            measured.append((group, layer, None if excluded else next(diagonals)))
        return measured

    def _hessian_diagonals(self, scaled: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        if self.hessian == "exact":
            return [exact_diagonal(parameter, gradient) for parameter, gradient in scaled]
        step = self.param_groups[0]["steps"]
        total = [torch.zeros_like(parameter) for parameter, _ in scaled]
        for sample in range(self.samples):
            key = int(rng.bits(self.seed, step, sample)[0] >> 1)
            for diagonal, estimate in zip(total, hutchinson_diagonals(scaled, key), strict=True):
                diagonal.add_(estimate, alpha=1.0 / self.samples)
        return total


def hutchinson_diagonals(scaled: list[tuple[Tensor, Tensor]], key: int) -> list[Tensor]:
    """z·Hz for one vector z of random signs over all parameters: the diagonal of H in the mean."""
    # a separate generator: measuring the curvature must not change the model's dropout
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


Config = config_from_constructor(Curvature)
build = builder_for(Curvature)
