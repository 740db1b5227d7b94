"""What a training loop relies on: gradients left alone, state restored exactly, odd tensors and torch's own tools."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from bigbatch.optim import LAMB, LARS, Curvature, MedianCurvature, PercentDelta

ALL = [LARS, LAMB, PercentDelta, MedianCurvature, Curvature]
SCALED = [LARS, LAMB, PercentDelta, MedianCurvature]
PATHS = [{"fused": True}, {"foreach": True}, {"foreach": False, "fused": False}]
BY_EVERY_PATH = [(kind, path) for kind in SCALED for path in PATHS] + [(Curvature, {})]


def small_model(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)


def backward(model, seed=0):
    parameter = next(model.parameters())
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed)).to(parameter.dtype)
    model.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    return loss


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
@pytest.mark.parametrize("maximize", [False, True])
def test_gradients_are_never_modified(kind, path, maximize):
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.1, maximize=maximize, **path)
    for seed in range(2):
        backward(model, seed)
        before = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        for parameter, gradient in zip(model.parameters(), before, strict=True):
            assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
def test_zero_weights_move_at_the_plain_lr(kind, path):
    # alone, and as two alike, which the fused path moves together
    for count in (1, 2):
        weights = [nn.Parameter(torch.zeros(2, 3)) for _ in range(count)]
        for weight in weights:
            weight.grad = torch.full((2, 3), 0.5)
        kind(weights, lr=0.1, **path).step()
        expected = torch.full((2, 3), -0.1 if kind is LAMB else -0.05)  # LAMB's first direction is the sign
        for weight in weights:
            torch.testing.assert_close(weight.detach(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
def test_zero_gradients_change_nothing(kind, path):
    weight = nn.Parameter(torch.ones(2, 3))
    weight.grad = torch.zeros(2, 3)
    kind([weight], lr=0.1, **path).step()
    assert torch.equal(weight.detach(), torch.ones(2, 3))


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind in SCALED for path in ({}, *PATHS[1:])] + [(Curvature, {})]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_norms_do_not_overflow(kind, path, dtype):
    # ‖w‖² = 64·100² is beyond float16; the step is to be that of float32 but for rounding
    def end(dtype):
        weights = [nn.Parameter(torch.full((8, 8), 100.0, dtype=dtype)) for _ in range(2)]
        for weight in weights:
            weight.grad = torch.full((8, 8), 50.0, dtype=dtype)
        kind(weights, **{"lr": 0.1, **({} if kind in (LAMB, Curvature) else {"trust_coefficient": 0.5})}, **path).step()
        return torch.stack([weight.detach().float() for weight in weights])

    moved = end(torch.float32)
    assert (moved - 100).abs().min() > 1
    torch.testing.assert_close(end(dtype), moved, rtol=1e-2, atol=0)


@pytest.mark.parametrize("kind", SCALED)
def test_fused_refuses_half_precision(kind):
    with pytest.raises(ValueError, match="fused=True needs float32 or float64 parameters"):
        kind([nn.Parameter(torch.ones(2, dtype=torch.float16))], lr=0.1, fused=True)


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
def test_tensors_without_gradients_and_empty_tensors_are_passed_over(kind, path):
    weights = [nn.Parameter(torch.ones(shape)) for shape in [(2, 2), (2, 2), (0, 3), (0, 3), (0,), (2, 2)]]
    for weight in weights[1:]:
        weight.grad = torch.ones_like(weight)
    optimizer = kind(weights, lr=0.1, momentum=0.9, **path) if kind is not LAMB else kind(weights, lr=0.1, **path)
    optimizer.step()
    assert torch.equal(weights[0].detach(), torch.ones(2, 2))
    assert (weights[1] < 1).all()
    assert torch.equal(weights[1], weights[5])
    weights[0].grad = torch.ones(2, 2)
    optimizer.step()  # joins late, with a state of its own: its first step is the others' first step
    torch.testing.assert_close(weights[0] < 1, torch.ones(2, 2, dtype=torch.bool))


@pytest.mark.parametrize("kind", ALL)
def test_a_step_without_any_gradient_says_so(kind):
    optimizer = kind([nn.Parameter(torch.ones(2, 2))], lr=0.1)
    with pytest.raises(ValueError, match=rf"{kind.__name__}.step\(\) found no gradient on any parameter"):
        optimizer.step()


def test_sparse_gradients_are_refused():
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = LARS(table.parameters(), lr=0.1)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="LARS does not support sparse gradients"):
        optimizer.step()


@pytest.mark.parametrize("kind", SCALED)
def test_memory_layout_does_not_change_a_step(kind):
    """Kernels that walk memory side by side would mix up a channels-last weight and a contiguous gradient."""
    torch.manual_seed(0)
    start, gradient = torch.randn(4, 3, 2, 2, dtype=torch.float64), torch.randn(4, 3, 2, 2, dtype=torch.float64)
    ends = []
    for layout in (torch.contiguous_format, torch.channels_last):
        weight = nn.Parameter(start.clone(memory_format=layout))
        weight.grad = gradient.clone()
        optimizer = kind([weight], lr=0.1)
        optimizer.step()
        optimizer.step()
        ends.append(weight.detach().contiguous())
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-12, atol=1e-12)


def odd_tensors():
    """Two dtypes, a gradient laid out unlike its weight, and more alike than are measured at once."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(80, 100)] * 19 + [(4, 3, 2, 2), (5,), (6,)]
    weights = [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in shapes]
    weights += [nn.Parameter(torch.randn(shape, generator=generator)) for shape in [(3, 2), (3, 2), (2,)]]
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    weights[19].grad = weights[19].grad.to(memory_format=torch.channels_last)
    return weights


@pytest.mark.parametrize("kind", SCALED)
def test_a_mixed_group_ends_where_each_tensor_alone_ends(kind):
    together, alone = odd_tensors(), odd_tensors()
    optimizer = kind(together, lr=0.1, weight_decay=0.1)
    for _ in range(2):
        optimizer.step()
    for weight in alone:
        single = kind([weight], lr=0.1, weight_decay=0.1, foreach=False, fused=False)
        for _ in range(2):
            single.step()
    for found, expected in zip(together, alone, strict=True):
        tolerance = 1e-12 if found.dtype is torch.float64 else 1e-5
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ALL)
def test_groups_have_their_own_options(kind):
    model = small_model()
    first, rest = list(model[0].parameters()), [*model[2].parameters(), *model[4].parameters()]
    optimizer = kind([{"params": first, "lr": 0.0}, {"params": rest}], lr=0.1)
    before = flat(model)
    backward(model)
    optimizer.step()
    moved = (flat(model) - before) != 0
    split = sum(parameter.numel() for parameter in first)
    assert not moved[:split].any()
    assert moved[split:].all()


@pytest.mark.parametrize("kind", ALL)
def test_closure_is_evaluated_with_gradients_and_its_loss_returned(kind):
    model, twin = small_model(), small_model()
    optimizer, plain = kind(model.parameters(), lr=0.1), kind(twin.parameters(), lr=0.1)
    returned = optimizer.step(lambda: backward(model))
    expected = backward(twin)
    plain.step()
    assert torch.equal(returned, expected)
    assert torch.equal(flat(model), flat(twin))


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
def test_a_restored_state_continues_bit_for_bit(kind, path):
    options = {"lr": 0.1, "weight_decay": 0.01, **path} | ({} if kind is LAMB else {"momentum": 0.9})
    model = small_model()
    optimizer = kind(model.parameters(), **options)
    for seed in range(3):
        backward(model, seed)
        optimizer.step()

    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = small_model()
    other.load_state_dict(saved["model"])
    restored = kind(other.parameters(), **options)
    restored.load_state_dict(saved["optimizer"])
    for seed in range(3, 6):
        for each, each_optimizer in ((model, optimizer), (other, restored)):
            backward(each, seed)
            each_optimizer.step()
    assert torch.equal(flat(model), flat(other))


@pytest.mark.parametrize(("kind", "torch_kind"), [(LARS, torch.optim.SGD), (LAMB, torch.optim.Adam)])
def test_state_moves_between_ours_and_torchs(kind, torch_kind):
    model = small_model()
    ours = kind(model.parameters(), lr=0.1)
    backward(model)
    ours.step()
    theirs = torch_kind(model.parameters(), lr=0.1)
    theirs.load_state_dict(ours.state_dict())
    theirs.step()
    back = kind(model.parameters(), lr=0.1)
    back.load_state_dict(theirs.state_dict())
    back.step()
    for parameter in model.parameters():
        assert back.state[parameter].keys() >= ours.state[parameter].keys()
    assert back.param_groups[0]["excluded"] == [False, True] * 3


def test_state_of_torchs_sgd_without_momentum_can_be_taken_over():
    model = small_model()
    theirs = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model)
    theirs.step()
    ours = LARS(model.parameters(), lr=0.1, momentum=0.9)
    ours.load_state_dict(theirs.state_dict())
    ours.param_groups[0]["momentum"] = 0.9
    ours.step()
    assert all("momentum_buffer" in ours.state[parameter] for parameter in model.parameters())


@pytest.mark.parametrize("kind", ALL)
def test_a_deep_copy_is_independent(kind):
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.1)
    backward(model)
    optimizer.step()
    twin_model, twin = copy.deepcopy((model, optimizer))
    backward(twin_model)
    before = flat(model)
    twin.step()
    assert torch.equal(flat(model), before)
    assert not torch.equal(flat(twin_model), before)


@pytest.mark.parametrize("kind", ALL)
def test_gradient_clipping_is_seen(kind):
    model, twin = small_model(), small_model()
    for each, scale in ((model, 1.0), (twin, 0.01)):
        backward(each)
        if scale == 1.0:
            norm = nn.utils.clip_grad_norm_(each.parameters(), 0.01)
        else:
            for parameter in each.parameters():
                parameter.grad.mul_(0.01 / (norm + 1e-6))
        kind(each.parameters(), lr=0.1).step()
    torch.testing.assert_close(flat(model), flat(twin))


@pytest.mark.parametrize("kind", ALL)
def test_grad_scaler_unscales_and_skips_overflow(kind):
    model, twin = small_model(torch.float32), small_model(torch.float32)
    optimizer, plain = kind(model.parameters(), lr=0.1), kind(twin.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def scaled_step(factor):
        model.zero_grad()
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        scaler.scale(model(inputs).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    scaled_step(1.0)
    backward(twin)
    plain.step()
    torch.testing.assert_close(flat(model), flat(twin))
    before = flat(model)
    scaled_step(float("inf"))
    assert torch.equal(flat(model), before)
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize("kind", ALL)
def test_a_compiled_model_trains_the_same(kind):
    model, twin = small_model(), small_model()
    compiled = torch.compile(model, backend="eager")
    optimizer, plain = kind(compiled.parameters(), lr=0.1), kind(twin.parameters(), lr=0.1)
    for seed in range(2):
        backward(compiled, seed)
        optimizer.step()
        backward(twin, seed)
        plain.step()
    torch.testing.assert_close(flat(model), flat(twin), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_torch_schedulers_set_the_lr(kind):
    model = small_model()
    optimizer = kind(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    backward(model)
    optimizer.step()
    scheduler.step()
    if kind is not LAMB:
        optimizer.param_groups[0]["momentum"] = 0.0
    before = flat(model)
    optimizer.step()
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize(("kind", "path"), BY_EVERY_PATH)
def test_several_scalars_are_layers_too(kind, path):
    stepped = []
    for count in (1, 3):  # alone, and stacked with others of its shape
        scalars = [nn.Parameter(torch.tensor(2.0, dtype=torch.float64)) for _ in range(count)]
        for scalar in scalars:
            scalar.grad = torch.tensor(0.5, dtype=torch.float64)
        kind(scalars, lr=0.1, exclude="none", **path).step()
        stepped += [scalar.item() for scalar in scalars]
    assert stepped == pytest.approx([stepped[0]] * 4, rel=1e-12)
    assert stepped[0] < 2
