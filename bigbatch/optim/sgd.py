"""Stochastic gradient descent without momentum (Robbins & Monro 1951), torch's."""

from __future__ import annotations

import torch

from bigbatch.optim import TorchConfig, builder_for


class Config(TorchConfig):
    """`lr`, `weight_decay`."""


build = builder_for(torch.optim.SGD)
