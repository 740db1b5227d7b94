"""RMSprop: gradients over the root of their mean square (Tieleman & Hinton 2012), torch's."""

from __future__ import annotations

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    lr: float = Field(0.001, ge=0)
    alpha: float = Field(0.99, ge=0, lt=1)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    centered: bool = False


build = builder_for(torch.optim.RMSprop)
