"""The hidden state of an LSTM between one window of text and the next (truncated back-propagation through time)."""

from __future__ import annotations

import torch
from torch import Tensor

from bigbatch.engines import Engine
from bigbatch.position import Slice

State = tuple[Tensor, ...]  # each [layers, streams, hidden]


class HiddenState:
    """The hidden state of all streams of a global batch. Each rank fills in its own streams."""

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self._whole: State | None = None
        self._own: set[Slice] = set()

    def take(self, micro_batch: Slice) -> State | None:
        """Return the state of a micro-batch's streams; None at the start of an epoch."""
        if self._whole is None:
            return None
        # a copy: `put` writes into the whole while the backward pass still needs what was taken
        own = (tensor[:, micro_batch.start : micro_batch.stop] for tensor in self._whole)
        return tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in own)

    def put(self, micro_batch: Slice, state: State) -> None:
        if self._whole is None:
            self._whole = tuple(t.new_zeros(t.shape[0], self.streams, t.shape[2]) for t in state)
        for whole, part in zip(self._whole, state, strict=True):
            whole[:, micro_batch.start : micro_batch.stop] = part.detach()
        self._own.add(micro_batch)

    def gather(self, engine: Engine) -> list[Tensor] | None:
        """The state of all streams, from all ranks, for a checkpoint."""
        if self._whole is None:
            return None
        gathered = []
        for whole in self._whole:
            own = torch.zeros_like(whole)
            for micro_batch in self._own:
                own[:, micro_batch.start : micro_batch.stop] = whole[:, micro_batch.start : micro_batch.stop]
            gathered.append(engine.sum(own))
        return gathered

    def restore(self, gathered: list[Tensor] | None, device: torch.device) -> None:
        self._whole = None if gathered is None else tuple(tensor.to(device) for tensor in gathered)
        self._own = set()
