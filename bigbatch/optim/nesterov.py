"""SGD with Nesterov's momentum (Nesterov 1983; Sutskever et al. 2013), torch's."""

from __future__ import annotations

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    lr: float = Field(0.05, ge=0)
    momentum: float = Field(0.9, gt=0, lt=1)


build = builder_for(torch.optim.SGD, nesterov=True)
