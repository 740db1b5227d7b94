import pytest
import torch

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.trust import trust_typed


def test_a_file_is_a_part():
    assert {"local", "ddp"} <= set(parts.names("engines"))
    assert parts.find("engines", "local").__name__ == "bigbatch.engines.local"


@pytest.mark.parametrize("kind", parts.KINDS)
def test_every_part_says_in_one_line_what_it_is(kind):
    for name in parts.names(kind):
        assert 10 < len(parts.summary(kind, name)) <= 120, f"{kind}/{name}"


def test_a_wrong_name_answers_with_the_nearest_right_one():
    with pytest.raises(Problem, match="no model called 'resnett'; did you mean 'resnet'"):
        parts.configure("models", "resnett")


def test_a_wrong_option_answers_with_the_nearest_right_one():
    with pytest.raises(Problem, match="model 'cnn' has no option 'widht'; did you mean 'width'"):
        parts.configure("models", {"name": "cnn", "widht": 4})


def test_a_wrong_value_is_named():
    with pytest.raises(Problem, match=r"model 'cnn': width .*got -3"):
        parts.configure("models", {"name": "cnn", "width": -3})


@pytest.fixture(autouse=True)
def _outside_is_typed(monkeypatch):
    monkeypatch.setenv("BIGBATCH_TRUST", "outside,torch.optim,os.path")


def test_a_dotted_path_reaches_a_class_outside():
    config = parts.configure("models", {"name": "outside:Net", "dropout": 0.5})
    model = parts.find("models", config.name).build(config, None)
    assert model.layers[4].p == 0.5


def test_an_optimizer_from_outside_gets_the_parameters():
    config = parts.configure("optim", {"name": "torch.optim:AdamW", "lr": 0.5})
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = parts.find("optim", config.name).build(config, [("weight", weight)])
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["params"][0] is weight


@pytest.mark.parametrize(
    ("kind", "path", "sentence"),
    [
        ("models", "no.such.module:Thing", "cannot be imported"),
        ("models", "outside:Nett", "has no 'Nett'; did you mean 'Net'"),
        ("optim", ".x", "would run the code of module '.x'"),
        ("optim", ":x", "would run the code of module ''"),
        ("models", "os.path", "module os.path is not a model, because it has no Config: name a class in it"),
        ("schedules", "outside:Net", "a schedule of your own must be a module, got a name in one: use 'outside'"),
    ],
)
def test_a_dotted_path_to_nowhere_is_one_sentence(kind, path, sentence):
    trust_typed(path)
    with pytest.raises(Problem, match=sentence):
        parts.configure(kind, path)


def test_options_that_a_class_outside_does_not_take_are_one_sentence():
    config = parts.configure("models", {"name": "outside:Net", "widht": 3})
    with pytest.raises(Problem, match=r"model 'outside:Net' does not take these options \(.*'widht'\): change them"):
        parts.find("models", config.name).build(config, None)


def test_an_optimizer_may_come_from_a_function():
    config = parts.configure("optim", {"name": "outside:adamw", "lr": 0.5})
    optimizer = parts.find("optim", config.name).build(config, [("weight", torch.nn.Parameter(torch.zeros(2)))])
    assert isinstance(optimizer, torch.optim.AdamW)


def test_a_config_knows_its_own_name():
    from bigbatch.models import cnn

    assert cnn.Config().name == "cnn"


@pytest.mark.parametrize("flag", ["NEEDS_MICRO_GRADIENTS", "NEEDS_PROBE", "WEIGHS_SAMPLES"])
def test_a_flag_of_the_module_that_is_no_longer_read_is_refused(flag, tmp_path, monkeypatch):
    package = f"with_{flag.lower()}"  # parts.find remembers modules by their names
    (tmp_path / package).mkdir()
    (tmp_path / package / "part.py").write_text(f"from bigbatch.parts import Config as Config\n{flag} = False\n")
    monkeypatch.syspath_prepend(tmp_path)
    trust_typed(f"{package}.part")
    with pytest.raises(Problem, match=f"^selector '{package}.part' sets {flag}, which is not read: set "):
        parts.find("selectors", f"{package}.part")
