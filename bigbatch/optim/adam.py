"""Adam: momentum over the root of the mean square (Kingma & Ba 2015), torch's."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    scaling_rule: ClassVar[str] = "adam_sde"
    lr: float = Field(0.001, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    amsgrad: bool = False


build = builder_for(torch.optim.Adam)
