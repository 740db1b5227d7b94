"""RMSprop: gradients over the root of their mean square (Tieleman & Hinton 2012), torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    lr: float = Field(0.001, ge=0)
    alpha: float = Field(0.99, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    centered: bool = False


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.RMSprop, config, named_parameters)
