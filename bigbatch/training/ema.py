"""An exponential moving average of the weights, evaluated beside them: a ← decay·a + (1 − decay)·w after each step.

At k times the batch the decay to the k-th power forgets as fast per sample (Busbridge et al. 2023, arXiv 2307.13813):
`Run.at_batch` applies it. BatchNorm's running statistics are averaged like weights.
"""

from __future__ import annotations

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bigbatch.engines import Engine
from bigbatch.errors import Problem


def average_weights(model: nn.Module, decay: float, engine: Engine) -> AveragedModel:
    """Return the average, which is the model itself until `update_parameters(model)` is called a second time."""
    if engine.forward_is_collective:
        raise Problem("ema_decay needs whole weights, but the engine shards them: use --set engine=ddp")
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
