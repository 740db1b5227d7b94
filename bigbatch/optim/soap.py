"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024, arXiv 2409.11321, Algorithm 3).

Checked against the authors' code, which is one file and not a package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from bigbatch.optim import builder_for
from bigbatch.optim.layerwise.base import Group
from bigbatch.optim.layerwise.options import Momentum, check_options, config_from_constructor, constructor_options
from bigbatch.optim.layerwise.shards import gather_full, is_sharded, local_gradient, local_part, shard_like

Bases = Mapping[int, Tensor]  # an orthogonal matrix for each preconditioned dimension of a tensor


class SOAP(Optimizer):
    """Shampoo with Adam in the Preconditioner's eigenbasis.

        optimizer = SOAP(model.parameters(), lr=0.003, weight_decay=0.01)
        loss(model(inputs), targets).backward()
        optimizer.step()

    For a matrix, L and R are averages of GGᵀ and GᵀG, Q_L and Q_R their eigenvectors: M ← β₁M + (1 − β₁)G;
    V ← β₂V + (1 − β₂)(Q_LᵀGQ_R)²; w ← (1 − lr·β)w − lr·Q_L[Q_LᵀM̂Q_R / (√V̂ + eps)]Q_Rᵀ. Every
    `precondition_frequency` steps one power iteration with a QR decomposition moves Q_L and Q_R along.

    A tensor of more dimensions has one average per dimension. Dimensions of more than `max_precond_dim` entries, such
    as vocabularies, are left as they are; the authors' default is 10,000, whose decomposition takes minutes on a CPU.
    Vectors take AdamW's steps. The first gradient of a matrix only sets its basis: in the basis of its own gradient
    every entry of V would be as large as that entry's square, and the step a sign.
    `shampoo_beta` is the β of L and R; None is β₂. Of sharded tensors the moments are sharded; the bases are not, and
    every rank computes the whole update.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: NonNegativeFloat = 3e-3,
        betas: tuple[Momentum, Momentum] = (0.95, 0.95),
        eps: PositiveFloat = 1e-8,
        weight_decay: NonNegativeFloat = 0.01,
        *,
        shampoo_beta: Momentum | None = None,
        precondition_frequency: PositiveInt = 10,
        max_precond_dim: PositiveInt = 2048,
    ) -> None:
        super().__init__(params, constructor_options(locals()))

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, whose options override the constructor's."""
        check_options(SOAP, self.defaults | param_group)
        super().add_param_group(param_group)
        refused = {parameter.dtype for parameter in self.param_groups[-1]["params"]} - {torch.float32, torch.float64}
        if refused:
            self.param_groups.pop()
            raise ValueError(f"SOAP needs float32 or float64 parameters, got {refused.pop()}: train with autocast")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. The closure, if any, evaluates the model with gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(group, parameter)
        return loss

    def _update(self, group: Group, parameter: Tensor) -> None:
        gradient, state = gather_full(local_gradient(parameter.grad, parameter), parameter), self.state[parameter]
        sizes = list(enumerate(gradient.shape)) if gradient.ndim > 1 else []
        sizes = [(dim, size) for dim, size in sizes if 1 < size <= group["max_precond_dim"]]
        is_first = not state
        if is_first:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            for dim, size in sizes:
                # flat: an engine shards what has the shape of its parameter
                state[f"factor{dim}"], state[f"basis{dim}"] = gradient.new_zeros(2, size * size)
        factors = {dim: state[f"factor{dim}"].view(size, size) for dim, size in sizes}
        bases = {dim: state[f"basis{dim}"].view(size, size) for dim, size in sizes}
        if not (is_first and sizes):
            mean, square = (gather_full(local_part(state[name]), parameter) for name in ("exp_avg", "exp_avg_sq"))
            state["step"] += 1
            _adam_step(group, parameter, gradient, mean, square, bases, int(state["step"]))
        beta = group["betas"][1] if group["shampoo_beta"] is None else group["shampoo_beta"]
        for dim, factor in factors.items():
            rows = gradient.movedim(dim, 0).flatten(1)
            factor.lerp_(rows @ rows.mT, 1 - beta)
            if is_first:
                bases[dim].copy_(torch.linalg.eigh(factor).eigenvectors.flip(1))
            elif int(state["step"]) % group["precondition_frequency"] == 0:
                order = iterate_basis(factor, bases[dim])
                square.copy_(square.index_select(dim, order))
        if not (is_first and sizes) and is_sharded(parameter):
            for name, full in (("exp_avg", mean), ("exp_avg_sq", square)):
                local_part(state[name]).copy_(shard_like(full, parameter))


def _adam_step(
    group: Group, parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, bases: Bases, step: int
) -> None:
    """Update both moments in place, and the weights with Adam's step in the eigenbasis."""
    (beta1, beta2), lr = group["betas"], float(group["lr"])
    rotated = rotate(gradient, bases)
    mean.lerp_(gradient, 1 - beta1)
    square.mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
    direction = rotate(mean, bases) / square.div(1 - beta2**step).sqrt_().add_(group["eps"])
    update = rotate(direction, {dim: basis.mT for dim, basis in bases.items()})
    weight = local_part(parameter).mul_(1 - lr * group["weight_decay"])
    weight.add_(shard_like(update, parameter), alpha=-lr / (1 - beta1**step))


def rotate(tensor: Tensor, bases: Bases) -> Tensor:
    """Multiply each dimension of a tensor by the transpose of its basis, if it has one: Q_LᵀGQ_R for a matrix."""
    for dim, basis in bases.items():
        tensor = torch.tensordot(basis, tensor.movedim(dim, 0), dims=([0], [0])).movedim(0, dim)
    return tensor


def iterate_basis(factor: Tensor, basis: Tensor) -> Tensor:
    """Move a basis towards the eigenvectors of a factor, in place, and return the new order of its columns."""
    product = factor @ basis
    order = (basis * product).sum(0).argsort(descending=True, stable=True)
    basis.copy_(torch.linalg.qr(product[:, order]).Q)
    return order


Config = config_from_constructor(SOAP, scaling_rule="sqrt", decouples_weight_decay=True)
build = builder_for(SOAP)
