"""Calling recurrent layers under autocast."""

from __future__ import annotations

import torch
from torch import Tensor, nn

HiddenState = tuple[Tensor, Tensor]  # h and c, each [layers, streams, hidden]


def call_lstm(lstm: nn.LSTM, inputs: Tensor, state: HiddenState | None = None) -> tuple[Tensor, HiddenState]:
    """Call an LSTM, without autocast where this CPU lacks bfloat16 instructions: oneDNN has no such LSTM there."""
    kind = inputs.device.type
    has_kernel = kind != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    with torch.autocast(kind, enabled=has_kernel and torch.is_autocast_enabled(kind)):
        outputs, state = lstm(inputs if has_kernel else inputs.type_as(lstm.all_weights[0][0]), state)
    return outputs, state
