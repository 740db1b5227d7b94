"""Adagrad: learning rates shrink with the sum of squared gradients (Duchi, Hazan, Singer 2011), torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    lr: float = Field(0.01, ge=0)
    lr_decay: float = Field(0.0, ge=0)
    initial_accumulator_value: float = Field(0.0, ge=0)
    eps: float = Field(1e-10, gt=0)


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.Adagrad, config, named_parameters)
