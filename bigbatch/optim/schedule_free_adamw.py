"""Schedule-Free AdamW: Adam's denominator, an average of iterates in place of momentum and decay (Defazio et al. 2024).

arXiv 2405.15682, the authors' implementation: `schedule_free_sgd` with ∇f(y)/(√v̂ + eps) in the place of the gradient.
The first beta is β of y = (1 − β)z + βx, so rules for Adam's momentum are not for it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from schedulefree import AdamWScheduleFree

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    """`r` weights the average by the r-th power of the step, `weight_lr_power` by a power of the learning rate."""

    scaling_rule: ClassVar[str] = "beta2_half_life"
    decouples_weight_decay: ClassVar[bool] = True
    lr: float = Field(0.0025, ge=0)
    betas: tuple[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    r: float = Field(0.0, ge=0)
    weight_lr_power: float = Field(2.0, ge=0)


build = builder_for(AdamWScheduleFree)
