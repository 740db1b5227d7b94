"""Schedule-Free SGD: gradients between the iterate and its average, no decay to plan (Defazio et al. 2024).

arXiv 2405.15682, the authors' implementation: y = (1 − β)z + βx; z ← z − lr·(∇f(y) + λy); x ← (1 − c)x + cz. The model
trains at y and is evaluated at x, the average of z with weights c ∝ lr²; checkpoints hold y and z. `momentum` is β. Use
a schedule that warms up and stays.
"""

from __future__ import annotations

from pydantic import Field
from schedulefree import SGDScheduleFree

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    """`r` weights the average by the r-th power of the step, `weight_lr_power` by a power of the learning rate."""

    lr: float = Field(1.0, ge=0)
    momentum: float = Field(0.9, gt=0, lt=1)
    r: float = Field(0.0, ge=0)
    weight_lr_power: float = Field(2.0, ge=0)


build = builder_for(SGDScheduleFree)
