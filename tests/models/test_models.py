"""What all models share: the dispatcher, features of any module, loading weights."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from bigbatch import models, parts
from bigbatch.errors import Problem


def test_importing_models_imports_no_torch():
    subprocess.run(
        [sys.executable, "-c", "import sys, bigbatch.models; sys.exit('torch' in sys.modules)"], check=True, timeout=60
    )


def test_a_class_from_outside_is_built_from_its_own_options(make):
    model = make("torch.nn:Linear", (64,), in_features=64, out_features=3)
    assert isinstance(model, nn.Linear)
    assert model.weight.shape == (3, 64)


def test_an_outside_thing_that_is_no_module_is_refused(make):
    with pytest.raises(Problem, match=r"'fractions:Fraction' built a Fraction: name a torch\.nn\.Module"):
        make("fractions:Fraction", (64,), numerator=1)


def test_unknown_model_names_the_nearest():
    with pytest.raises(Problem, match="did you mean 'resnet'"):
        parts.configure("models", "resnett")


# features


class HeadFirst(nn.Module):
    """Registers its last layer first, and has torchvision's kind of `features`, which stop before the linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 2)
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3))
        self.hidden = nn.Linear(3 * 2 * 2, 5)

    def forward(self, x):
        return self.head(self.hidden(self.features(x).flatten(1)).relu())


def test_features_of_a_foreign_module_are_the_input_of_the_linear_called_last():
    torch.manual_seed(0)
    model = HeadFirst()
    x = torch.randn(3, 1, 4, 4)
    found = models.features(model, x)
    assert found.shape == (3, 5)
    torch.testing.assert_close(model.head(found), model(x))


def test_features_leaves_no_hooks_behind_even_after_an_error():
    model = HeadFirst()
    with pytest.raises(RuntimeError):
        models.features(model, torch.randn(3, 1, 9, 9))
    models.features(model, torch.randn(3, 1, 4, 4))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_features_prefers_the_models_own_method(make):
    model = make("mlp", (1, 8, 8), hidden=(7, 6))
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(models.features(model, x), model.features(x))


def test_features_can_be_differentiated():
    model = HeadFirst()
    models.features(model, torch.randn(3, 1, 4, 4)).sum().backward()
    assert model.hidden.weight.grad is not None
    assert model.head.weight.grad is None


@pytest.mark.parametrize("kind", ["own", "caught"])
def test_features_and_output_come_from_one_pass_and_leave_the_model_as_it_was(make, kind):
    model = make("mlp", (1, 4, 4), hidden=(7, 6)) if kind == "own" else HeadFirst()
    x = torch.randn(3, 1, 4, 4)
    expected = models.features(model, x), model(x)
    passes = []
    hook = next(layer for layer in model.modules() if isinstance(layer, nn.Linear)).register_forward_hook(
        lambda *_: passes.append(1)
    )
    attributes = set(vars(model))
    found = models.features_and_output(model, x)
    hook.remove()
    assert len(passes) == 1
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert set(vars(model)) == attributes


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten()), "no nn.Linear was called"),
        (nn.Sequential(nn.Linear(4, 2), nn.Flatten()), r"got shape \(2, 1, 4, 4\)"),
    ],
)
def test_a_module_without_flat_features_is_refused(model, found):
    with pytest.raises(Problem, match=f"{found}.*give it a method features"):
        models.features(model, torch.randn(2, 1, 4, 4))


# weights


@pytest.fixture
def model(make):
    return make("cnn", (1, 8, 8), width=2, hidden=3, batch_norm=True)


@pytest.fixture
def weights(model):
    """Other values than the model's own, for every entry."""
    return {key: torch.full_like(value, index) for index, (key, value) in enumerate(model.state_dict().items(), 1)}


def assert_loaded(model, weights):
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key]), key


@pytest.mark.parametrize("suffix", [".th", ".pt", ".pth"])
@pytest.mark.parametrize("level", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_every_layout_of_a_checkpoint_loads(model, weights, tmp_path, suffix, level, prefix):
    path = tmp_path / f"weights{suffix}"
    stored = {prefix + key: value for key, value in weights.items()}
    torch.save({level: stored, "best_prec1": 91.7} if level else stored, path)
    models.load_weights(model, path)
    assert_loaded(model, weights)


def test_safetensors_load(model, weights, tmp_path):
    save_file(weights, tmp_path / "weights.safetensors")
    models.load_weights(model, str(tmp_path / "weights.safetensors"))
    assert_loaded(model, weights)


def test_weights_from_before_batchnorm_counted_batches_load(model, weights, tmp_path):
    counters = [key for key in weights if key.endswith("num_batches_tracked")]
    assert len(counters) == 2
    torch.save({key: value for key, value in weights.items() if key not in counters}, tmp_path / "old.pth")
    models.load_weights(model, tmp_path / "old.pth")
    assert_loaded(model, weights | dict.fromkeys(counters, torch.tensor(0)))


def lose(weights, key):
    return {name: value for name, value in weights.items() if name != key}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda weights: lose(weights, "head.bias"), "have no 'head.bias', which CNN needs.*Give the options"),
        (
            lambda weights: weights | {"extra.bias": torch.ones(1)},
            "have 'extra.bias', which CNN does not have.*Give the opt",
        ),
        (
            lambda weights: weights | {"head.bias": torch.ones(7)},
            r"'head.bias' of shape \(7,\) where CNN has \(10,\): give the options and the number of classes",
        ),
        (lambda weights: {f"net.{key}": value for key, value in weights.items()}, "did you mean 'net.conv1.0.weight'"),
        (lambda weights: weights | {"head.bias": "seven"}, "hold str at 'head.bias' in place of a tensor"),
        (lambda weights: {}, "hold no state dict"),
        (lambda weights: list(weights.values()), "hold no state dict"),
    ],
)
def test_weights_that_do_not_fit_leave_the_model_as_it_was(model, weights, tmp_path, spoil, sentence):
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.save(spoil(weights), tmp_path / "weights.pt")
    with pytest.raises(Problem, match=sentence):
        models.load_weights(model, tmp_path / "weights.pt")
    assert_loaded(model, before)


class Mischief:
    def __reduce__(self):
        return (print, ("code ran while weights were loaded",))


def test_a_checkpoint_that_carries_code_is_refused_and_does_not_run(model, tmp_path, capsys):
    torch.save({"state_dict": Mischief()}, tmp_path / "weights.pt")
    with pytest.raises(Problem, match=r"hold more than tensors.*save only its state dict"):
        models.load_weights(model, tmp_path / "weights.pt")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_broken_files_are_refused(model, weights, tmp_path, name):
    path = tmp_path / name
    torch.save(weights, path) if name.endswith(".pt") else save_file(weights, path)
    for cut in (0, 5, path.stat().st_size // 2):
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(Problem, match="are broken"):
            models.load_weights(model, path)


def test_missing_file_and_unknown_suffix_are_named(model, tmp_path):
    with pytest.raises(Problem, match=r"there are no weights at .*nowhere\.pt: check the path"):
        models.load_weights(model, tmp_path / "nowhere.pt")
    with pytest.raises(Problem, match=r"end in '\.onnx': use a file that ends in \.safetensors"):
        models.load_weights(model, tmp_path / "model.onnx")
