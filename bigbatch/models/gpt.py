"""A small decoder-only transformer language model (GPT-2, Radford et al. 2019): pre-norm, tied embeddings, no biases.

A window is read by itself: there is no state from one window to the next, so its samples may be shuffled.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.models.blocks.input_checks import require_language

_INIT_STD = 0.02  # of GPT-2; layers that add to the residual stream have it divided by √(their number)


class Config(parts.Config):
    """The width of the residual stream is divided over the heads; the MLP is four times as wide."""

    layers: PositiveInt = Field(2, description="blocks of attention and MLP")
    heads: PositiveInt = Field(4, description="attention heads of each layer")
    width: PositiveInt = Field(128, description="of the residual stream; a multiple of heads")
    dropout: float = Field(0.0, ge=0, lt=1, description="on embeddings, attention weights and what each layer adds")


class Attention(nn.Module):
    """Causal self-attention over several heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)  # queries, keys, values, in this order
        self.project = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        # [samples, steps, 3 width] to three of [samples, heads, steps, width per head]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        output: Tensor = self.project(attended.transpose(1, 2).flatten(2))
        return output


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, bias=False)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width, bias=False)
        self.expand = nn.Linear(config.width, 4 * config.width, bias=False)
        self.project = nn.Linear(4 * config.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        output: Tensor = x + self.dropout(self.project(gelu(self.expand(self.mlp_norm(x)))))
        return output


class GPT(nn.Module):
    """Takes and returns a state as recurrent language models do; it is empty."""

    def __init__(self, config: Config, vocabulary: int, steps: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.positions = nn.Embedding(steps, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.head = nn.Linear(config.width, vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                residual = name.endswith("project.weight")
                nn.init.normal_(weight, std=_INIT_STD / math.sqrt(2 * config.layers) if residual else _INIT_STD)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        """Return logits of each next token, [samples, steps, vocabulary], and the empty state."""
        return self.head(self._read(tokens)), ()

    def features(self, tokens: Tensor) -> Tensor:
        """Return the output at the last token, [samples, width]."""
        return self._read(tokens)[:, -1]

    def _read(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.dropout(self.embedding(tokens) + self.positions(positions))
        output: Tensor = self.norm(self.blocks(embedded))
        return output


def build(config: Config, dataset: Dataset) -> nn.Module:
    require_language(dataset, config.name)
    if config.width % config.heads:
        raise Problem(
            f"model 'gpt': width {config.width} does not divide over {config.heads} heads: use a multiple of them"
        )
    return GPT(config, len(dataset.classes), dataset.sample_shape[0])
