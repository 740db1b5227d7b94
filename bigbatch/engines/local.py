"""One process on one device, without communication."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.engines.communication.replicas import ReplicatedModelEngine


class Config(parts.Config):
    """No options."""


class Local(ReplicatedModelEngine):
    rank = 0
    world_size = 1

    def __init__(self) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()

    def sum_gradients(self, model: nn.Module) -> None:
        pass

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, value: Any) -> Any:
        return value

    def stop(self) -> None:
        pass


def start(config: Config) -> Local:
    return Local()
