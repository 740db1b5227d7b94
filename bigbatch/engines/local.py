"""One process on one device, without communication."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import parts


class Config(parts.Config):
    """No options."""


class Local:
    rank = 0
    world_size = 1
    forward_is_collective = False

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()

    def sum_gradients(self, model: nn.Module) -> None:
        pass

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        return model, optimizer.state_dict()

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, value: Any) -> Any:
        return value

    def stop(self) -> None:
        pass


def start(config: Config) -> Local:
    return Local()
