"""Muon: momentum with all singular values brought near 1, AdamW for what is not a hidden matrix (Jordan et al. 2024).

https://kellerjordan.github.io/posts/muon, checked against its reference implementation and torch.optim.Muon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from math import sqrt
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

from bigbatch import layers
from bigbatch.optim.layerwise.base import FUSED_DTYPES, Group
from bigbatch.optim.layerwise.options import Momentum, check_options, config_from_constructor, constructor_options
from bigbatch.optim.layerwise.shards import gather_full, local_gradient, local_part, shard_like

# p(x) = ax + bx³ + cx⁵ of the reference: the steepest at 0 among those that keep [0, 1] within about [0, 1.2]
QUINTIC = (3.4445, -4.7750, 2.0315)
# of the norm that a direction is divided by: a zero gradient gives a zero update
_EPS = 1e-7
# small matrices go together, because calls cost more than products, as long as a chunk of them stays in the cache
_CHUNK_ELEMENTS = 1 << 17


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Return [n, rows, columns] matrices with singular values near 1 in the place of their own, U·S·Vᵀ → U·Vᵀ.

    Newton-Schulz: X ← P·X with P = a + b·XXᵀ + c·(XXᵀ)², from X/‖X‖. After 5 steps singular values of at least 1/500
    of the norm lie between 0.68 and 1.21.
    """
    a, b, c = QUINTIC
    rows, columns = sorted(matrices.shape[-2:])
    is_tall = matrices.size(-1) < matrices.size(-2)
    x = matrices.mT if is_tall else matrices
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=_EPS)
    if columns < 2 * rows or x.dtype is torch.bfloat16:
        for _ in range(steps):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    else:
        # all P are polynomials of the first XXᵀ: multiplied first, the long side takes part in two products only.
        # Small singular values lose digits (1e-4 of the update in float32), too many in bfloat16.
        gram, product = x @ x.mT, torch.eye(rows, dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
        for _ in range(steps):
            polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
            polynomial.diagonal(dim1=-2, dim2=-1).add_(a)
            gram, product = polynomial @ gram @ polynomial, polynomial @ product
        x = product @ x
    orthogonal: Tensor = x.mT if is_tall else x
    return orthogonal


class Muon(Optimizer):
    """MomentUm Orthogonalized by Newton-Schulz: m ← μm + (1 − μ)g; w ← (1 − lr·β)w − lr·s·orthogonalize(μm + (1 − μ)g).

        optimizer = Muon(model, lr=0.02, weight_decay=0.1)
        loss(model(inputs), targets).backward()
        optimizer.step()

    A tensor of more than two dimensions is the matrix of its rows: a convolution is [out, in·height·width]. A tensor
    that holds several matrices, one above the other, is orthogonalised matrix by matrix: the gates of nn.LSTM and
    nn.GRU, the projections of nn.MultiheadAttention and of layers named qkv. For others, say so by their names:
    `blocks={"*.gate_up.weight": 2}`.

    AdamW, at `adam_lr_ratio` times the learning rate and with the same weight decay, updates vectors, embeddings
    (nn.Embedding), the head (the matrix registered last), matrices with fewer than `min_side` rows or columns, and
    what `adamw=["*.patterns.of.names"]` adds. Given parameters in the place of a model it cannot know embeddings and
    heads. Groups may say it themselves: {"params": ..., "use_muon": True, "row_blocks": 3}.

    `scale`: s is √max(1, rows/columns), the reference's, or 0.2·√max(rows, columns), at which an update is as large
    as AdamW's (Liu et al. 2025, arXiv 2502.16982). `nesterov=False` orthogonalises m itself.
    Sharded matrices are gathered one by one; every rank orthogonalises all of them and keeps its own shards.
    """

    def __init__(
        self,
        params: ParamsT | nn.Module,
        lr: NonNegativeFloat = 0.02,
        momentum: Momentum = 0.95,
        weight_decay: NonNegativeFloat = 0.0,
        *,
        nesterov: bool = True,
        newton_schulz_steps: NonNegativeInt = 5,
        scale: Literal["spectral", "adam"] = "spectral",
        adam_lr_ratio: NonNegativeFloat = 0.15,
        adam_betas: tuple[Momentum, Momentum] = (0.9, 0.95),
        adam_eps: PositiveFloat = 1e-10,
        min_side: PositiveInt = 11,
        blocks: dict[str, PositiveInt] | None = None,
        adamw: tuple[str, ...] = (),
    ) -> None:
        options = constructor_options(locals())
        self._hidden_blocks = layers.matrix_blocks(params) if isinstance(params, nn.Module) else None
        named = params.named_parameters() if isinstance(params, nn.Module) else params
        super().__init__(named, options)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, divided by what updates its tensors unless it has `use_muon`."""
        options = self.defaults | param_group
        check_options(Muon, options)
        if "use_muon" in param_group:
            super().add_param_group({"row_blocks": 1, **param_group})
            return
        params = param_group["params"]
        by_blocks: dict[int, list[Any]] = {}
        for entry in [params] if isinstance(params, Tensor) else params:
            name, parameter = entry if isinstance(entry, tuple) else (None, entry)
            by_blocks.setdefault(self._count_blocks(options, name, parameter), []).append(entry)
        for blocks, entries in by_blocks.items():
            own = {"params": entries, "use_muon": blocks > 0, "row_blocks": blocks or 1}
            super().add_param_group({**param_group, **own})

    def _count_blocks(self, options: Group, name: str | None, parameter: Tensor) -> int:
        """Return how many matrices a tensor holds; 0 if AdamW updates it."""
        blocks = 1 if self._hidden_blocks is None else self._hidden_blocks.get(name or "", 0)
        patterns = [*(options["blocks"] or {}).items(), *((pattern, 0) for pattern in options["adamw"])]
        if patterns and name is None:
            raise ValueError("blocks and adamw go by name, but the parameters have no names: pass the model")
        for pattern, count in patterns:
            blocks = count if fnmatchcase(name or "", pattern) else blocks
        if not blocks or parameter.ndim < 2:
            return 0
        if len(parameter) % blocks:
            raise ValueError(f"{name} has {len(parameter)} rows, which {blocks} blocks do not divide: change blocks")
        return blocks if min(len(parameter) // blocks, parameter[:1].numel()) >= options["min_side"] else 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step. The closure, if any, evaluates the model with gradients and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            gradients = [local_gradient(parameter.grad, parameter) for parameter in parameters]
            if parameters and group["use_muon"]:
                self._orthogonal_update(group, parameters, gradients)
            elif parameters:
                self._adamw_update(group, parameters, gradients)
        return loss

    def _orthogonal_update(self, group: Group, parameters: list[Parameter], gradients: list[Tensor]) -> None:
        lr, momentum = float(group["lr"]), float(group["momentum"])
        averages = self._state(parameters, "momentum_buffer")
        torch._foreach_lerp_(averages, gradients, 1.0 - momentum)
        directions = torch._foreach_lerp(gradients, averages, momentum) if group["nesterov"] else averages
        stacks = [
            gather_full(direction, parameter).reshape(group["row_blocks"], len(parameter) // group["row_blocks"], -1)
            for direction, parameter in zip(directions, parameters, strict=True)
        ]
        updates = orthogonalize_all(stacks, group["newton_schulz_steps"])
        weights = [local_part(parameter) for parameter in parameters]
        torch._foreach_mul_(weights, 1.0 - lr * group["weight_decay"])
        for weight, update, parameter in zip(weights, updates, parameters, strict=True):
            rows, columns = update.shape[-2:]
            scale = 0.2 * sqrt(max(rows, columns)) if group["scale"] == "adam" else sqrt(max(1.0, rows / columns))
            weight.add_(shard_like(update.reshape(parameter.shape), parameter), alpha=-lr * scale)

    def _adamw_update(self, group: Group, parameters: list[Parameter], gradients: list[Tensor]) -> None:
        beta1, beta2 = group["adam_betas"]
        steps = [self.state[parameter].setdefault("step", torch.tensor(0.0)) for parameter in parameters]
        fused = all(parameter.is_cpu and parameter.dtype in FUSED_DTYPES for parameter in parameters)
        adamw(
            [local_part(parameter) for parameter in parameters],
            gradients,
            self._state(parameters, "exp_avg"),
            self._state(parameters, "exp_avg_sq"),
            [],
            steps,
            fused=fused,
            foreach=not fused,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=float(group["lr"]) * group["adam_lr_ratio"],
            weight_decay=group["weight_decay"],
            eps=group["adam_eps"],
            maximize=False,
        )

    def _state(self, parameters: Sequence[Parameter], name: str) -> list[Tensor]:
        """Return this rank's parts of a tensor of the state of each parameter, at first zeros."""
        found = []
        for parameter in parameters:
            state = self.state[parameter]
            if name not in state:
                state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            found.append(local_part(state[name]))
        return found


def orthogonalize_all(stacks: Sequence[Tensor], steps: int) -> list[Tensor]:
    """Orthogonalise stacks of matrices: those of one shape at once, but no more than the cache holds."""
    by_shape: dict[tuple[Any, ...], list[int]] = {}
    for index, stack in enumerate(stacks):
        by_shape.setdefault((stack.shape[-2:], stack.dtype, stack.device), []).append(index)
    found = list(stacks)
    for indices in by_shape.values():
        alike = torch.cat([stacks[index] for index in indices])
        # as the reference does on GPUs, whose matrix units are made for it; elsewhere bfloat16 is slower
        alike = alike.to(torch.bfloat16 if alike.is_cuda else torch.promote_types(alike.dtype, torch.float32))
        chunk = len(alike) if alike.is_cuda else max(1, _CHUNK_ELEMENTS // alike[0].numel())
        results = torch.cat([orthogonalize(matrices, steps) for matrices in alike.split(chunk)])
        for index, result in zip(indices, results.split([len(stacks[index]) for index in indices]), strict=True):
            found[index] = result
    return found


Config = config_from_constructor(Muon, scaling_rule="muon", decouples_weight_decay=True, takes_model=True)


def build(config: Any, model: nn.Module | Sequence[tuple[str, Parameter]]) -> Muon:
    return Muon(model, **config.model_dump(exclude={"name"}))
