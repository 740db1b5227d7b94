"""Adadelta: steps in the unit of the weights (Zeiler 2012), torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    lr: float = Field(1.0, ge=0)
    rho: float = Field(0.9, ge=0, lt=1)
    eps: float = Field(1e-6, gt=0)


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.Adadelta, config, named_parameters)
