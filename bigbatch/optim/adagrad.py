"""Adagrad: learning rates shrink with the sum of squared gradients (Duchi, Hazan, Singer 2011), torch's."""

from __future__ import annotations

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    lr: float = Field(0.01, ge=0)
    lr_decay: float = Field(0.0, ge=0)
    initial_accumulator_value: float = Field(0.0, ge=0)
    eps: float = Field(1e-10, gt=0)


build = builder_for(torch.optim.Adagrad)
