"""BatchNorm's running statistics, the same whatever the number of micro-batches and ranks.

Normalisation happens within a group (one micro-batch), so the group size is part of a run. The running statistics
take one step per global batch: over n groups with momentum m they move by 1-(1-m)^n towards the mean of all groups.
That is as far as n updates in a row would move them, but does not depend on the order of the groups or on their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bigbatch.engines import Engine


def layers(model: nn.Module) -> list[_BatchNorm]:
    """The layers that normalise over the batch."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


class RunningStatisticsUpdater:
    """The running means and variances of a model's BatchNorm layers."""

    def __init__(self, model: nn.Module, engine: Engine) -> None:
        self.layers = [layer for layer in layers(model) if layer.running_mean is not None]
        self.momenta = [layer.momentum for layer in self.layers]
        self.engine = engine

    @contextmanager
    def accumulate(self, groups_of_this_rank: int, groups_of_all: int) -> Iterator[None]:
        """Take one step of the statistics for all forward passes within.

        With a single group on a single rank torch does the same by itself.
        """
        if not self.layers or (groups_of_all == 1 and self.engine.world_size == 1):
            yield
            return
        before = [[buffer.clone() for buffer in (*_mean_and_variance(layer), _count(layer))] for layer in self.layers]
        for layer in self.layers:
            _count(layer).zero_()
            layer.momentum = None  # torch then keeps the plain mean of what it sees
        try:
            yield
        finally:
            for layer, momentum in zip(self.layers, self.momenta, strict=True):
                layer.momentum = momentum
        self._step(before, groups_of_this_rank, groups_of_all)

    def detach_from_graph(self) -> None:
        """Continue with copies: a graph whose backward pass is still to come keeps the statistics that it saw."""
        for layer in self.layers:
            layer.running_mean, layer.running_var = (buffer.clone() for buffer in _mean_and_variance(layer))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Normalise by the batch as usual, but do not update the statistics."""
        for layer in self.layers:
            layer.track_running_stats = False
        try:
            yield
        finally:
            for layer in self.layers:
                layer.track_running_stats = True

    def _step(self, before: list[list[Tensor]], groups_of_this_rank: int, groups_of_all: int) -> None:
        found = [buffer for layer in self.layers for buffer in _mean_and_variance(layer)]
        weighted = torch.cat([buffer.flatten() for buffer in found]).mul_(groups_of_this_rank / groups_of_all)
        group_means = iter(self.engine.sum(weighted).split([buffer.numel() for buffer in found]))
        for layer, momentum, (*old, old_count) in zip(self.layers, self.momenta, before, strict=True):
            if momentum is None:  # a plain mean over all groups ever seen
                kept = float(old_count) / float(old_count + groups_of_all)
            else:
                kept = (1 - momentum) ** groups_of_all
            for buffer, old_buffer in zip(_mean_and_variance(layer), old, strict=True):
                buffer.copy_(torch.lerp(next(group_means).view_as(buffer), old_buffer, kept))
            _count(layer).copy_(old_count + groups_of_all)


def _mean_and_variance(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    return cast(Tensor, layer.running_mean), cast(Tensor, layer.running_var)


def _count(layer: _BatchNorm) -> Tensor:
    return cast(Tensor, layer.num_batches_tracked)
