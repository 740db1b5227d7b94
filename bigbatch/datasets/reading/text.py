"""Text as one long sequence of token numbers, read in parallel streams that keep their hidden state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bigbatch.errors import Problem


class _UnlabelledText:
    lazy = False

    @property
    def labels(self) -> Tensor:
        raise Problem("text has no labels: choose a filter and a model that work without classes")


class UnsplitTokens(_UnlabelledText):
    """A sequence of int64 token numbers. It has samples once the number of streams, the global batch, is known.

    Where windows are shuffled they are the same ones for every global batch.
    """

    def __init__(self, tokens: Tensor, steps: int, *, shuffle: bool = False) -> None:
        self.tokens = tokens
        self.steps = steps
        self.sequential = not shuffle

    def __len__(self) -> int:
        return len(self.tokens)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Refuse: text has no samples before it is split into streams."""
        raise Problem("text is read in streams: call as_streams(streams) and fetch from its result")

    def as_streams(self, streams: int) -> TokenStreams:
        """Split into equal contiguous streams, each into windows of `steps` tokens; the rest is left out."""
        return TokenStreams(self.tokens, self.steps, streams if self.sequential else 1, sequential=self.sequential)

    def evaluation_windows(self, streams: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs, next tokens and mask, each [streams, <= steps]: every token but the first is predicted once.

        The hidden state is kept from one item to the next. More streams are faster, but each begins without context.
        """
        predictions = len(self.tokens) - 1
        per_stream = -(-predictions // streams)
        padded = torch.zeros(streams * per_stream + 1, dtype=torch.int64)
        padded[: len(self.tokens)] = self.tokens
        mask = (torch.arange(streams * per_stream) < predictions).view(streams, per_stream)
        inputs, targets = padded[:-1].view(streams, per_stream), padded[1:].view(streams, per_stream)
        for begin in range(0, per_stream, self.steps):
            window = slice(begin, begin + self.steps)
            yield inputs[:, window], targets[:, window], mask[:, window]


class TokenStreams(_UnlabelledText):
    """Samples of `steps` tokens with the next token of each. Sample window * streams + stream: a batch of
    `streams` consecutive samples continues, row by row, the batch before it."""

    def __init__(self, tokens: Tensor, steps: int, streams: int, *, sequential: bool = True) -> None:
        self.streams = streams
        self.sequential = sequential
        self.tokens_per_stream = (len(tokens) - 1) // streams
        self.windows_per_stream = self.tokens_per_stream // steps
        if self.windows_per_stream == 0:
            raise Problem(
                f"{len(tokens):,} tokens cannot be cut into {streams:,} streams of {steps} steps: "
                f"use a global batch of at most {(len(tokens) - 1) // steps:,}, or fewer steps"
            )
        self.steps = steps
        self._windows = tokens.unfold(0, steps + 1, 1)

    def __len__(self) -> int:
        return self.streams * self.windows_per_stream

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Return tokens [n, steps] and next tokens [n, steps]; text is not augmented."""
        window, stream = indices // self.streams, indices % self.streams
        rows = self._windows[stream * self.tokens_per_stream + window * self.steps]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
