"""check_part accepts a part that keeps its contract, and names what is broken in one that does not."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from bigbatch.testing import check_part, find_checks

SIGN = '''"""Sign descent: every weight moves by the learning rate, against its gradient (Bernstein et al. 2018)."""
import torch
from pydantic import Field
from bigbatch import parts

class Config(parts.Config):
    lr: float = Field(0.002, ge=0)
    weight_decay: float = Field(0.0, ge=0)

class Sign(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad.sign(), alpha=group["lr"])

def build(config, named_parameters):
    return Sign(named_parameters, lr=config.lr, weight_decay=config.weight_decay)
'''
DROPS_NAN = '''"""Keeps samples whose loss is above one half, in the order of the batch."""
import torch
from bigbatch import parts

class Config(parts.Config):
    pass

def weights(losses, config, position):
    return (losses.detach() > 0.5).to(losses.dtype)
'''
MOVES_WEIGHTS = '''"""A probe that changes what it measures, which a probe may not do."""
import torch
from bigbatch.probes import Config as ProbeConfig

class Config(ProbeConfig):
    pass

def measure(state, config):
    with torch.no_grad():
        next(state.model.parameters()).add_(1e-3)
    return {"norm": 1.0}
'''


def module(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), made.__dict__)
    made.Config.__module__ = name
    monkeypatch.setitem(sys.modules, name, made)
    return made


def test_a_part_of_a_users_own_passes(monkeypatch):
    check_part("optim", module("mine.sign", SIGN, monkeypatch))


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        ("optim", SIGN.replace("weight_decay=config.weight_decay", ""), "options reach the optimizer"),
        ("optim", SIGN.replace("Field(0.002, ge=0)", "0.002"), "is not refused"),
        ("optim", SIGN.replace("alpha=group", "alpha=-group"), "test accuracy"),
        ("optim", SIGN.replace('(Bernstein et al. 2018)."""', '(Bernstein et al. 2018)"""'), "not a sentence"),
        ("selectors", DROPS_NAN, "breaks its contract: nan is kept"),
        ("probes", MOVES_WEIGHTS, "changed the training"),
    ],
)
def test_a_broken_part_is_found(kind, source, message, monkeypatch):
    name = f"mine.broken_{abs(hash(source))}"  # parts.find remembers modules by their names
    with pytest.raises(AssertionError, match=message):
        check_part(kind, module(name, source, monkeypatch))


def test_kinds_without_checks_of_their_own_have_the_common_ones():
    assert [check.__name__ for check in find_checks("engines")] == ["check_docstring", "check_config"]
    with pytest.raises(ValueError, match="'optimizers' is not a kind of part"):
        find_checks("optimizers")
