"""AdamW: Adam with decoupled weight decay, w ← w − lr·(m̂/(√v̂ + eps) + βw) (Loshchilov & Hutter 2019), torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch.nn import Parameter

from bigbatch.optim import adam, builder_for
from bigbatch.optim.layerwise.shards import is_sharded


class Config(adam.Config):
    decouples_weight_decay: ClassVar[bool] = True
    weight_decay: float = Field(0.01, ge=0)


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    # torch's fused kernel does not take DTensors; None lets torch choose
    fused = None if any(is_sharded(parameter) for _, parameter in named_parameters) else True
    return builder_for(torch.optim.AdamW, fused=fused)(config, named_parameters)
