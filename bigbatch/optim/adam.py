"""Adam: momentum over the root of the mean square (Kingma & Ba 2015), torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    lr: float = Field(0.001, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    amsgrad: bool = False


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.Adam, config, named_parameters)
