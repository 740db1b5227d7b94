"""PyTorch FSDP2 under torchrun: weights, gradients and optimizer state are sharded over the ranks."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from bigbatch import parts
from bigbatch.engines.communication.process_group import ProcessGroupEngine


class Config(parts.Config):
    # False gathers the full model at once: for a model that uses a layer's weights without calling the layer
    layer_by_layer: bool = True
    reshard_after_forward: bool = True  # False keeps the weights for the backward pass: more memory, less communication
    timeout_seconds: PositiveFloat = 300.0


class FSDP(ProcessGroupEngine):
    forward_is_collective = True

    def __init__(self, config: Config) -> None:
        super().__init__("fsdp", config.timeout_seconds)
        self.config = config

    def wrap(self, model: nn.Module) -> nn.Module:
        """Shard each layer that has weights of its own as a unit, and the other parameters with the root module."""
        self.full_model = copy.deepcopy(model) if self.rank == 0 else None  # checkpoints are written from it
        mesh = init_device_mesh(self.device.type, (self.world_size,))
        uses = Counter(parameter for _, parameter in model.named_parameters(remove_duplicate=False))
        layers = _layers_to_shard(model) if self.config.layer_by_layer else []
        # tied weights, like those of an embedding and the head, are gathered for both
        untied = [layer for layer in layers if all(uses[parameter] == 1 for parameter in layer.parameters())]
        for module in [*untied, model]:
            sharded = fully_shard(module, mesh=mesh, reshard_after_forward=self.config.reshard_after_forward)
            # a sum, because losses are divided by the global count; gloo supports no other reduction
            sharded.set_force_sum_reduction_for_comms(True)
            sharded.set_gradient_divide_factor(1.0)
        return model

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, FSDPModule)
        return _no_gradient_sync(wrapped)

    def sum_gradients(self, model: nn.Module) -> None:
        raise AssertionError("gradients of sharded weights are summed in the backward pass")

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        """Gather tensor by tensor, so that only rank 0 ever holds all of them."""
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            full = _full_tensor(value)
            if self.full_model is not None:
                with torch.no_grad():
                    _get_tensor(self.full_model, name).copy_(full)
        state = optimizer.state_dict()
        gathered: dict[Any, dict[str, Any]] = {}
        for number, entry in state["state"].items():
            full_entry = {name: _full_tensor(value) for name, value in entry.items()}
            if self.rank == 0:
                gathered[number] = {
                    name: value.cpu() if isinstance(value, Tensor) else value for name, value in full_entry.items()
                }
        return (self.full_model or model), state | {"state": gathered}

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        sharded = {
            number: {name: _shard_like(value, parameters[number]) for name, value in entry.items()}
            for number, entry in state["state"].items()
        }
        optimizer.load_state_dict(state | {"state": sharded})


def _layers_to_shard(model: nn.Module) -> list[nn.Module]:
    """Return the model's children with weights; of lists and dicts, which are never called, their children."""
    found: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            found += _layers_to_shard(child)
        elif any(True for _ in child.parameters()):
            found.append(child)
    return found


@contextmanager
def _no_gradient_sync(wrapped: FSDPModule) -> Iterator[None]:
    wrapped.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        wrapped.set_requires_gradient_sync(True)


def _full_tensor(value: Any) -> Any:
    return value.full_tensor() if isinstance(value, DTensor) else value


def _get_tensor(model: nn.Module, name: str) -> Tensor:
    module, _, leaf = name.rpartition(".")
    tensor: Tensor = getattr(model.get_submodule(module), leaf)
    return tensor


def _shard_like(value: Any, parameter: Tensor) -> Any:
    """Return the value sharded like its parameter if it has the same shape."""
    if isinstance(parameter, DTensor) and isinstance(value, Tensor) and value.shape == parameter.shape:
        value = value.to(parameter.device)
        return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return value


def start(config: Config) -> FSDP:
    return FSDP(config)
