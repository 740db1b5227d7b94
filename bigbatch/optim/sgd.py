"""Stochastic gradient descent without momentum (Robbins & Monro 1951), torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import Parameter

from bigbatch.optim import TorchConfig, build_torch_optimizer


class Config(TorchConfig):
    """`lr`, `weight_decay`."""


def build(config: Config, named_parameters: Sequence[tuple[str, Parameter]]) -> torch.optim.Optimizer:
    return build_torch_optimizer(torch.optim.SGD, config, named_parameters)
