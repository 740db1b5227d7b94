"""What holds for every selector, found by looking at the folder."""

from __future__ import annotations

import pytest
import torch

from bigbatch import parts, selectors
from bigbatch.position import Position

NEEDED = {"discard": 0.3}


def config_of(name: str) -> parts.Config:
    fields = parts.find("selectors", name).Config.model_fields
    needed = {key: value for key, value in NEEDED.items() if key in fields}
    return parts.configure("selectors", {"name": name, **needed})


def losses() -> torch.Tensor:
    return torch.rand(50, generator=torch.Generator().manual_seed(0), requires_grad=True)


def at(epochs: float) -> Position:
    return Position(epochs=epochs, total_epochs=10, global_batch=50)


@pytest.mark.parametrize("epochs", [0.0, 9.99])
@pytest.mark.parametrize("name", parts.names("selectors"))
def test_one_finite_weight_a_sample_of_the_losses_type_without_a_graph(name, epochs):
    for dtype in (torch.float32, torch.float64):
        weights = selectors.weights(losses().to(dtype), config_of(name), at(epochs))
        assert (weights.shape, weights.dtype, weights.requires_grad) == ((50,), dtype, False)
        assert (weights.isfinite() & (weights >= 0)).all()
        assert weights.count_nonzero() > 0


@pytest.mark.parametrize("name", parts.names("selectors"))
def test_weights_are_repeatable_and_leave_the_losses_alone(name):
    given = losses()
    first = selectors.weights(given, config_of(name), at(1))
    assert first.equal(selectors.weights(given, config_of(name), at(1)))
    assert given.equal(losses())


@pytest.mark.parametrize("name", parts.names("selectors"))
def test_the_order_of_samples_does_not_matter(name):
    given, order = losses(), torch.randperm(50, generator=torch.Generator().manual_seed(1))
    weights = selectors.weights(given, config_of(name), at(1))
    assert selectors.weights(given[order], config_of(name), at(1)).equal(weights[order])


@pytest.mark.parametrize("name", parts.names("selectors"))
def test_nan_is_never_dropped(name):
    given = losses().detach()
    given[7] = float("nan")
    assert selectors.weights(given, config_of(name), at(1))[7] > 0


@pytest.mark.parametrize("name", parts.names("selectors"))
def test_options_survive_json_and_are_frozen(name):
    config = config_of(name)
    assert type(config).model_validate_json(config.model_dump_json()) == config
    assert config.name == name
    with pytest.raises(ValueError):
        config.name = "other"


@pytest.mark.parametrize("name", parts.names("selectors"))
def test_the_docstring_names_what_it_is(name):
    assert 20 < len(parts.summary("selectors", name)) <= 120
    assert parts.summary("selectors", name).endswith(".")
