"""torch's own optimizers under the registry, for comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from torch.nn import Parameter
from torch.optim import Optimizer

from bigbatch import parts


class TorchConfig(parts.Config):
    """What all of them have; weight decay is L2, added to the gradient."""

    lr: float = Field(0.1, ge=0)
    weight_decay: float = Field(0.0, ge=0)


def make(
    optimizer: type[Optimizer], config: TorchConfig, named_parameters: Sequence[tuple[str, Parameter]], **fixed: Any
) -> Optimizer:
    """The optimizer with the config's options, which are named as torch names them."""
    return optimizer(named_parameters, **config.model_dump(exclude={"name"}), **fixed)
