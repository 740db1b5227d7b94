"""TensorFlow's initialization of layers for torch's, because the LEGW paper used TensorFlow.

TensorFlow's LSTM has one kernel [inputs + hidden, 4 hidden] and one bias; torch has two of each, whose products and
values are added. Both of torch's biases learn, so their sum moves twice as far per step as TensorFlow's bias.
"""

from __future__ import annotations

import math

from torch import Tensor, nn


def init_glorot(layer: nn.Linear | nn.Embedding) -> None:
    """Uniform within ±√(6 / (fan_in + fan_out)), biases zero: the default of tf.get_variable and tf.layers."""
    nn.init.xavier_uniform_(layer.weight)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


def init_lstm_glorot(lstm: nn.LSTM) -> None:
    """Glorot with the fans of the one kernel, so both of torch's matrices share a bound; forget gates start at 1."""
    for inputs, recurrent, bias, other_bias in lstm_weights_by_layer(lstm):
        fan_in = inputs.shape[1] + recurrent.shape[1]
        fan_out = inputs.shape[0]
        bound = math.sqrt(6 / (fan_in + fan_out))
        nn.init.uniform_(inputs, -bound, bound)
        nn.init.uniform_(recurrent, -bound, bound)
        nn.init.zeros_(bias)
        nn.init.zeros_(other_bias)
        # torch orders gates as input, forget, cell, output; the two biases are added, so only one has 1
        nn.init.ones_(bias.data[lstm.hidden_size : 2 * lstm.hidden_size])


def init_lstm_uniform(lstm: nn.LSTM, bound: float) -> None:
    """Weights uniform within ±bound, biases zero, forget gates included."""
    for inputs, recurrent, bias, other_bias in lstm_weights_by_layer(lstm):
        nn.init.uniform_(inputs, -bound, bound)
        nn.init.uniform_(recurrent, -bound, bound)
        nn.init.zeros_(bias)
        nn.init.zeros_(other_bias)


def lstm_weights_by_layer(lstm: nn.LSTM) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return (weight_ih, weight_hh, bias_ih, bias_hh) of each layer."""
    return [(weights[0], weights[1], weights[2], weights[3]) for weights in lstm.all_weights]
