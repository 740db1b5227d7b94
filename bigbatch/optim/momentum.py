"""SGD with heavy-ball momentum (Polyak 1964), torch's."""

from __future__ import annotations

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    lr: float = Field(0.05, ge=0)
    momentum: float = Field(0.9, ge=0, lt=1)


build = builder_for(torch.optim.SGD)
