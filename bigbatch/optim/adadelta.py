"""Adadelta: steps in the unit of the weights (Zeiler 2012), torch's."""

from __future__ import annotations

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    lr: float = Field(1.0, ge=0)
    rho: float = Field(0.9, ge=0, lt=1)
    eps: float = Field(1e-6, gt=0)


build = builder_for(torch.optim.Adadelta)
