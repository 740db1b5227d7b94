"""A word-level LSTM language model (Zaremba et al. 2014, small): the PTB network of LEGW (You et al. 2019).

It reads streams of text piece by piece: the state that a piece leaves is given to the next, detached by the loop.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.models._inputs import require_language
from bigbatch.models._recurrent import glorot, glorot_lstm, uniform_lstm

State = tuple[Tensor, Tensor]  # h and c, each [layers, streams, hidden]


class Config(parts.Config):
    """init "uniform" is TensorFlow's PTB tutorial: ±init_scale, LSTM biases 0. "tensorflow": Glorot, forget gates 1."""

    embedding: PositiveInt = 200
    hidden: PositiveInt = 200
    layers: PositiveInt = 2
    dropout: float = Field(0.0, ge=0, lt=1)  # on what goes into and comes out of each layer, never between steps
    init: Literal["uniform", "tensorflow", "torch"] = "uniform"
    init_scale: float = Field(0.1, gt=0)


class WordLSTM(nn.Module):
    carries_state = True

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.embedding, config.hidden, config.layers, batch_first=True, dropout=between)
        self.head = nn.Linear(config.hidden, vocabulary)
        if config.init == "tensorflow":
            glorot(self.embedding)
            glorot_lstm(self.lstm)
            glorot(self.head)
        elif config.init == "uniform":
            for weights in (self.embedding.weight, self.head.weight, self.head.bias):
                nn.init.uniform_(weights, -config.init_scale, config.init_scale)
            uniform_lstm(self.lstm, config.init_scale)

    def zero_state(self, streams: int) -> State:
        """The state before the first word of each stream."""
        zeros = self.head.weight.new_zeros(self.lstm.num_layers, streams, self.lstm.hidden_size)
        return zeros, zeros.clone()

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """[streams, steps] words to [streams, steps, vocabulary] logits of the word after each, and the state left."""
        outputs, state = self._outputs(tokens, state)
        return self.head(outputs), state

    def features(self, tokens: Tensor) -> Tensor:
        """The output at the last word, from a zero state: [streams, hidden]."""
        outputs, _ = self._outputs(tokens, None)
        return outputs[:, -1]

    def _outputs(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        embedded = self.dropout(self.embedding(tokens))
        outputs, state = self.lstm(embedded, state or self.zero_state(len(tokens)))
        return self.dropout(outputs), state


def build(config: Config, dataset: Dataset) -> nn.Module:
    require_language(dataset, config.name)
    return WordLSTM(config, len(dataset.classes))
