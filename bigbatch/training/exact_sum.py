"""Sums of gradients that do not depend on their order, and so not on the number of ranks: `reduction=exact`.

A gradient is split into multiples of 2⁻²⁴ and, of what is left, of 2⁻⁶², both as int64. Adding integers is
associative, while floats round after each addition. Numbers of a magnitude from 2⁻³⁸ to 2²⁰ lose none of float32's
bits; smaller ones are rounded to a multiple of 2⁻⁶², and a larger one makes its tensor NaN.

Bits are the same where a micro-batch has the same gradient on each rank: on one kind of CPU, with as many threads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bigbatch.engines import Engine

_HIGH, _LOW = 2.0**24, 2.0**62  # quanta per 1
_LARGEST = 2.0**20  # half a million micro-batches of it still fit into an int64


class ExactSum:
    """The sum of the gradients of a global batch, over micro-batches and ranks."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        device = self.parameters[0].device
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.quanta = torch.zeros(2, sum(self.sizes), dtype=torch.int64, device=device)
        self.counts = torch.zeros(2, len(self.parameters), dtype=torch.int64, device=device)  # used, out of range

    def add(self) -> None:
        """Add the gradients of one micro-batch, and take them from the parameters."""
        for number, (parameter, high, low) in enumerate(zip(self.parameters, *self._split(), strict=True)):
            if parameter.grad is not None:
                value = parameter.grad.flatten().double()
                in_range = value.abs() < _LARGEST  # false for NaN
                value = torch.where(in_range, value, 0.0)
                multiple = torch.round(value * _HIGH)
                high += multiple.long()
                low += torch.round((value - multiple / _HIGH) * _LOW).long()
                self.counts[0, number] += 1
                self.counts[1, number] += ~in_range.all()
                parameter.grad = None

    def reduce(self, engine: Engine) -> None:
        """Sum over ranks and leave the result in `.grad`; a parameter that no rank has used stays without one."""
        engine.sum(self.quanta)
        used, out_of_range = engine.sum(self.counts).tolist()
        for number, (parameter, high, low) in enumerate(zip(self.parameters, *self._split(), strict=True)):
            if used[number]:
                total = high.double() / _HIGH + low.double() / _LOW
                if out_of_range[number]:
                    total.fill_(torch.nan)
                parameter.grad = total.to(parameter.dtype).view_as(parameter).contiguous()

    def _split(self) -> list[tuple[Tensor, ...]]:
        return [quanta.split(self.sizes) for quanta in self.quanta]
