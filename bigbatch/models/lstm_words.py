"""A word-level LSTM language model (Zaremba et al. 2014, small): the PTB network of LEGW (You et al. 2019).

It reads streams of text window by window: the hidden state after a window is passed to the next, detached by the loop.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models.blocks.initialization import init_glorot, init_lstm_glorot, init_lstm_uniform
from bigbatch.models.blocks.input_checks import require_language

HiddenState = tuple[Tensor, Tensor]  # h and c, each [layers, streams, hidden]


class Config(parts.Config):
    """init "uniform" is TensorFlow's PTB tutorial: ±init_scale, LSTM biases 0. "tensorflow": Glorot, forget gates 1."""

    embedding: PositiveInt = Field(200, description="width of a word's vector")
    hidden: PositiveInt = Field(200, description="units of each LSTM layer")
    layers: PositiveInt = Field(2, description="LSTM layers")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="on what goes into and comes out of each layer, never between steps"
    )
    init: Literal["uniform", "tensorflow", "torch"] = Field("uniform", description="the kind of initial weights")
    init_scale: float = Field(0.1, gt=0, description="the bound of uniform initial weights")


class WordLSTM(nn.Module):
    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.embedding, config.hidden, config.layers, batch_first=True, dropout=between)
        self.head = nn.Linear(config.hidden, vocabulary)
        if config.init == "tensorflow":
            init_glorot(self.embedding)
            init_lstm_glorot(self.lstm)
            init_glorot(self.head)
        elif config.init == "uniform":
            for weights in (self.embedding.weight, self.head.weight, self.head.bias):
                nn.init.uniform_(weights, -config.init_scale, config.init_scale)
            init_lstm_uniform(self.lstm, config.init_scale)

    def zero_state(self, streams: int) -> HiddenState:
        """Return the hidden state before the first word of each stream."""
        weight, shape = self.head.weight, (self.lstm.num_layers, streams, self.lstm.hidden_size)
        zeros = torch.zeros(shape, dtype=weight.dtype, device=weight.device)  # new_zeros of a shard is one itself
        return zeros, zeros.clone()

    def forward(self, tokens: Tensor, state: HiddenState | None = None) -> tuple[Tensor, HiddenState]:
        """Return logits of each next word, [streams, steps, vocabulary], and the last hidden state."""
        outputs, state = self._run_lstm(tokens, state)
        return self.head(outputs), state

    def features(self, tokens: Tensor) -> Tensor:
        """Return the output at the last word from a zero state, [streams, hidden]."""
        outputs, _ = self._run_lstm(tokens, None)
        return outputs[:, -1]

    def _run_lstm(self, tokens: Tensor, state: HiddenState | None) -> tuple[Tensor, HiddenState]:
        embedded = self.dropout(self.embedding(tokens))
        outputs, state = self.lstm(embedded, state or self.zero_state(len(tokens)))
        return self.dropout(outputs), state


def build(config: Config, dataset: Dataset) -> nn.Module:
    require_language(dataset, config.name)
    return WordLSTM(config, len(dataset.classes))
