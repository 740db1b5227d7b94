"""SGD with heavy-ball momentum (Polyak 1964), torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    lr: float = Field(0.05, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.SGD, config, named_parameters)
