"""Sharded parameters (DTensor): this rank's shards, and norms of full tensors from the shards of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from bigbatch.optim.layerwise.norms import foreach_norms


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor, found out without importing torch.distributed."""
    return type(tensor) is not Parameter and type(tensor) is not Tensor and hasattr(tensor, "to_local")


def local_part(tensor: Any) -> Tensor:
    """Return this rank's shard of a sharded tensor, any other tensor as it is."""
    found: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return found


def gather_full(shard: Tensor, parameter: Any) -> Tensor:
    """Return the full tensor from the shards of all ranks, which are sharded as the parameter is. Collective."""
    if not is_sharded(parameter):
        return shard
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(shard, mesh, placements, shape=parameter.shape, stride=parameter.stride()).full_tensor()


def shard_like(full: Tensor, parameter: Any) -> Tensor:
    """Return this rank's shard of a tensor that all ranks have, sharded as the parameter is."""
    if not is_sharded(parameter):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None).to_local()


def local_gradient(gradient: Any, parameter: Any) -> Tensor:
    """Return the part of the gradient that belongs to this rank's shard of the parameter."""
    if not is_sharded(parameter):
        whole: Tensor = gradient
        return whole
    if gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    local: Tensor = gradient.to_local()
    return local


def sharded_norms(parameters: Sequence[Any], shards: Sequence[Sequence[Tensor]], order: int = 2) -> list[list[float]]:
    """Return norms of full tensors; `shards` has this rank's shards, one row per parameter.

    One all-reduce serves all tensors with the same mesh and placement. Powers are summed in float64, which holds the
    square of any float32 norm.
    """
    import torch.distributed as dist

    norms: list[list[float]] = [[] for _ in parameters]
    indices_by_placement: dict[Any, list[int]] = {}
    for index, parameter in enumerate(parameters):
        sharded_dims = tuple(dim for dim, place in enumerate(parameter.placements) if not place.is_replicate())
        indices_by_placement.setdefault((parameter.device_mesh, sharded_dims), []).append(index)
    for (mesh, sharded_dims), indices in indices_by_placement.items():
        local = foreach_norms([shard for index in indices for shard in shards[index]], order)
        powers = torch.tensor([value if order == 1 else value * value for value in local], dtype=torch.float64)
        powers = powers.to(mesh.device_type)
        for dim in sharded_dims:
            dist.all_reduce(powers, group=mesh.get_group(dim))
        values = iter((powers ** (1.0 / order)).tolist())
        for index in indices:
            norms[index] = [next(values) for _ in shards[index]]
    return norms
