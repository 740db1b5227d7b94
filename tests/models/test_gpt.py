from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, softmax

from bigbatch.errors import Problem


@pytest.fixture
def gpt(make):
    """Two layers of two heads over 11 tokens, in float64, with weights large enough to tell outputs apart."""
    model = make("gpt", (6,), 11, "language", layers=2, heads=2, width=8).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


def test_size(make, parameters):
    # embedding, shared with the head; positions; per block qkv, projection, two MLP matrices, two norms; the last norm
    model = make("gpt", (64,), 10_000, "language", layers=3, heads=4, width=64)
    block = 3 * 64 * 64 + 64 * 64 + 2 * 4 * 64 * 64 + 2 * 64
    assert parameters(model) == 10_000 * 64 + 64 * 64 + 3 * block + 64


def test_a_later_token_never_changes_an_earlier_output(gpt):
    tokens = torch.randint(11, (3, 6))
    before, _ = gpt(tokens)
    for step in range(6):
        changed = tokens.clone()
        changed[:, step] = (changed[:, step] + 1) % 11
        after, _ = gpt(changed)
        assert torch.equal(after[:, :step], before[:, :step])
        assert all(not torch.allclose(after[:, late], before[:, late], atol=1e-6) for late in range(step, 6))


def test_samples_do_not_mix(gpt):
    tokens = torch.randint(11, (3, 6))
    torch.testing.assert_close(gpt(tokens)[0][1:2], gpt(tokens[1:2])[0], rtol=0, atol=1e-12)


def test_against_attention_written_out(gpt):
    tokens = torch.randint(11, (2, 6))
    x = gpt.embedding.weight[tokens] + gpt.positions.weight
    future = torch.ones(6, 6).triu(1).bool()
    for block in gpt.blocks:
        normed = layer_norm(x, (8,), block.attention_norm.weight)
        q, k, v = (normed @ part.T for part in block.attention.qkv.weight.chunk(3))
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = q[..., head] @ k[..., head].transpose(1, 2) / math.sqrt(4)
            heads.append(softmax(scores.masked_fill(future, -math.inf), -1) @ v[..., head])
        x = x + torch.cat(heads, -1) @ block.attention.project.weight.T
        x = x + gelu(layer_norm(x, (8,), block.mlp_norm.weight) @ block.expand.weight.T) @ block.project.weight.T
    expected = layer_norm(x, (8,), gpt.norm.weight) @ gpt.embedding.weight.T
    torch.testing.assert_close(gpt(tokens)[0], expected, rtol=0, atol=1e-12)


def test_embedding_and_head_share_storage_and_gradient(gpt):
    assert gpt.head.weight is gpt.embedding.weight
    assert sum("head" in name or "embedding" in name for name, _ in gpt.named_parameters()) == 1
    tokens, targets = torch.tensor([[1, 2]]), torch.tensor([[3, 4]])
    cross_entropy(gpt(tokens)[0][0], targets[0]).backward()
    together = gpt.embedding.weight.grad.clone()
    gpt.head.weight = torch.nn.Parameter(gpt.head.weight.detach().clone())
    gpt.zero_grad()
    cross_entropy(gpt(tokens)[0][0], targets[0]).backward()
    torch.testing.assert_close(together, gpt.embedding.weight.grad + gpt.head.weight.grad)
    assert not gpt.embedding.weight.grad[[0, *range(3, 11)]].any()  # by itself the embedding learns of seen tokens only


def test_initial_weights_are_those_of_gpt_2(make):
    model = make("gpt", (64,), 1000, "language", layers=8, width=64)
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert model.blocks[0].attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.blocks[0].project.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    tokens = torch.randint(1000, (4, 64))
    loss = cross_entropy(model(tokens)[0].flatten(0, 1), torch.randint(1000, (256,)))
    assert loss.item() == pytest.approx(math.log(1000), abs=0.05)  # no token is preferred


def test_dropout_acts_while_training_only(make):
    model = make("gpt", (6,), 11, "language", dropout=0.5)
    tokens = torch.randint(11, (2, 6))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_a_width_that_heads_do_not_divide_is_refused(make):
    with pytest.raises(Problem, match="width 10 does not divide over 4 heads: use a multiple"):
        make("gpt", (6,), 11, "language", width=10)
