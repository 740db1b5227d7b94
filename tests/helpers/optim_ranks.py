"""What each of two gloo ranks does in test_shards.py; rank 0 writes down what came out."""

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from bigbatch.optim import LAMB, LARS, SOAP, Curvature, MedianCurvature, Muon, PercentDelta

WITH_PATHS = {kind.__name__: kind for kind in (LARS, LAMB, PercentDelta, MedianCurvature)}
KINDS = WITH_PATHS | {kind.__name__: kind for kind in (Curvature, Muon, SOAP)}
OPTIONS = {"lr": 0.1, "weight_decay": 0.05}
# SOAP: only sides whose GGᵀ has full rank; in the others' null space rounding would choose the basis
OWN_OPTIONS = {"Muon": {"min_side": 1}, "SOAP": {"max_precond_dim": 4}}
PATHS = {"default": {}, "foreach": {"foreach": True}, "plain": {"foreach": False, "fused": False}}
STEPS = 3
# rows that do not divide by two, a tensor with nothing on rank 1, a split along columns, one whole on each rank
PLACED = [((5, 3), Shard(0)), ((1, 4), Shard(0)), ((3, 4), Shard(1)), ((4, 2), Replicate()), ((6,), Shard(0))]


def cases():
    """By every path in float64, and by the default one in float32, whose rounding an eigenbasis magnifies."""
    every_path = [(name, path, torch.float64) for name in WITH_PATHS for path in PATHS]
    return [*every_path, *((name, "default", torch.float64 if name == "SOAP" else torch.float32) for name in KINDS)]


def make(name, path, params):
    return KINDS[name](params, **OPTIONS, **OWN_OPTIONS.get(name, {}), **PATHS[path])


def model(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def batch(step, dtype):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(step)).to(dtype)


def placed_tensors(dtype):
    """Starting weights, and a function that gives the gradients of a step."""
    generator = torch.Generator().manual_seed(1)
    starts = [torch.randn(shape, generator=generator).to(dtype) for shape, _ in PLACED]

    def gradients(step):
        fresh = torch.Generator().manual_seed(100 + step)
        return [torch.randn(shape, generator=fresh).to(dtype) for shape, _ in PLACED]

    return starts, gradients


def train(network, optimizer, slice_of_batch, dtype, steps=range(STEPS)):
    for step in steps:
        optimizer.zero_grad()
        network(batch(step, dtype)[slice_of_batch]).square().mean().backward()
        optimizer.step()


def alone(name, path, dtype):
    """What the ranks must arrive at: one process, nothing sharded."""
    network = model(dtype)
    train(network, make(name, path, network.parameters()), slice(None), dtype)
    starts, gradients = placed_tensors(dtype)
    weights = [nn.Parameter(start) for start in starts]
    optimizer = make(name, path, weights)
    for step in range(STEPS):
        for weight, gradient in zip(weights, gradients(step), strict=True):
            weight.grad = gradient
        optimizer.step()
    return [weight.detach() for weight in network.parameters()], [weight.detach() for weight in weights]


def placed(name, path, dtype, mesh):
    starts, gradients = placed_tensors(dtype)
    weights = [
        nn.Parameter(distribute_tensor(start, mesh, [placement]))
        for start, (_, placement) in zip(starts, PLACED, strict=True)
    ]
    optimizer = make(name, path, weights)
    reductions = []
    for step in range(STEPS):
        for weight, gradient, (_, placement) in zip(weights, gradients(step), PLACED, strict=True):
            weight.grad = distribute_tensor(gradient, mesh, [placement])
        with counted(reductions):
            optimizer.step()
    return [weight.detach().full_tensor() for weight in weights], len(reductions) / STEPS


class counted:
    """Notes every all-reduce that is asked for."""

    def __init__(self, calls):
        self.calls = calls

    def __enter__(self):
        self.original = dist.all_reduce

        def all_reduce(*args, **kwargs):
            self.calls.append(args)
            return self.original(*args, **kwargs)

        dist.all_reduce = all_reduce

    def __exit__(self, *_):
        dist.all_reduce = self.original


def fsdp(name, path, dtype, mesh, mine):
    network = model(dtype)
    for layer in (network[0], network[2], network):
        fully_shard(layer, mesh=mesh)
    train(network, make(name, path, network.parameters()), mine, dtype)
    return [weight.detach().full_tensor() for weight in network.parameters()]


def fsdp_resumed(name, dtype, mesh, mine):
    """Saved after one step through torch's distributed checkpoint format, loaded into a fresh optimizer."""
    network = model(dtype)
    fully_shard(network, mesh=mesh)
    first = make(name, "default", network.parameters())
    train(network, first, mine, dtype, range(1))
    saved = get_optimizer_state_dict(network, first)
    second = make(name, "default", network.parameters())
    set_optimizer_state_dict(network, second, saved)
    train(network, second, mine, dtype, range(1, STEPS))
    return [weight.detach().full_tensor() for weight in network.parameters()]


def ddp(name, path, dtype, mine):
    network = DistributedDataParallel(model(dtype))
    train(network, make(name, path, network.parameters()), mine, dtype)
    return [weight.detach() for weight in network.parameters()]


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{folder}/store", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60)
    )
    mesh = init_device_mesh("cpu", (2,))
    mine = slice(4 * rank, 4 * rank + 4)
    found = {}
    for name, path, dtype in cases():
        weights, reductions = placed(name, path, dtype, mesh)
        found[name, path, str(dtype)] = {
            "placed": weights,
            "reductions": reductions,
            "fsdp": fsdp(name, path, dtype, mesh, mine),
            "ddp": ddp(name, path, dtype, mine),
        }
    for name in KINDS:
        found[name, "resumed"] = fsdp_resumed(name, torch.float64, mesh, mine)
    if rank == 0:
        torch.save(found, f"{folder}/found.pt")
    dist.barrier()
    dist.destroy_process_group()
