"""Results made again: from another folder, and refused where something they were made from has changed."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path

import filter_parts
import numpy as np
import pytest
import torch
from torch import nn

from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.errors import Problem
from bigbatch.filters import decide_again, load, override, rebuild, save
from bigbatch.filters.pipeline.source import hash_module


def filtered(name, out, **options):
    settings = [f"{key}={value}" for key, value in options.items()]
    filter_dataset(FilterRequest("digits", out=Path(out), filter_name=name, settings=settings, quiet=True))
    return load(out)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Results in a folder of their own, whose options name files relative to where the command was run."""
    monkeypatch.chdir(tmp_path)
    features = np.random.default_rng(0).normal(size=(1437, 6)).astype(np.float32)
    np.save("features.npy", features)
    filtered("random", "out/first.npz", drop=0.3)
    return filtered("network", "out/kept.npz", network="features.npy", reducer="none", after="out/first.npz")


def test_a_result_is_made_again_from_another_folder_and_after_all_was_moved(made, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert torch.equal(rebuild("../out/kept.npz").mask, made.mask)
    assert torch.equal(rebuild(tmp_path / "out/kept.json").mask, made.mask)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("out", "features.npy"):
        shutil.move(tmp_path / name, moved / name)
    assert torch.equal(rebuild(moved / "out/kept.npz").mask, made.mask)


@pytest.mark.parametrize("option", ["after", "like", "by.like"])
def test_a_changed_result_that_was_used_is_noticed(made, option):
    if option == "like":
        filtered("random", "out/kept.npz", like="out/first.npz")
    if option == "by.like":
        by = json.dumps({"name": "el2n", "model": "mlp", "networks": 1, "epochs": 1, "like": "out/first.npz"})
        filtered("ccs", "out/kept.npz", by=by)
    filtered("random", "out/first.npz", drop=0.3, seed=1)
    with pytest.raises(Problem, match=f"that '{option}' of out/kept.npz names has another mask now: restore"):
        rebuild("out/kept.npz")


def test_changed_features_are_noticed(made):
    np.save("features.npy", np.load("features.npy") * 2)
    with pytest.raises(Problem, match=r"the network or features of out/kept\.npz have changed since"):
        rebuild("out/kept.npz")


def test_another_mask_than_the_recorded_one_is_refused(made, tmp_path):
    packages = made.manifest.packages | {"numpy": "0.1"}
    manifest = asdict(replace(made.manifest, filter_mask_hash="0" * 64, packages=packages))
    (tmp_path / "out/other.json").write_text(json.dumps(manifest))
    with pytest.raises(Problem, match=r"cannot be rebuilt bit for bit here \(numpy .* for 0\.1\): filter"):
        rebuild("out/other.json")


def test_a_result_of_an_earlier_format_is_refused_in_one_sentence(made):
    """It has no `points`: deciding it again would take the first two of many dimensions for all of them."""
    manifest = {name: value for name, value in asdict(made.manifest).items() if name != "working_folder"}
    with np.load(made.path) as file:
        arrays = {name: file[name] for name in file.files if name != "points"}
    np.savez(made.path, **arrays | {"manifest": np.array(json.dumps(manifest | {"format": 1}))})
    old = load(made.path)
    for again in (
        lambda: decide_again(old, min_samples=7),
        lambda: override(old, [0], keep=True, reason="seen"),
        lambda: save("out/again.npz", old),
    ):
        with pytest.raises(Problem, match=r"out/kept\.npz has no manifest of format 2: create the result again"):
            again()
    Path("out/list.json").write_text("[1]")
    with pytest.raises(Problem, match=r"out/list\.json has no manifest of format 2"):
        rebuild("out/list.json")


# -- what makes two networks unlike


class Scaled(filter_parts.Net):
    def __init__(self, scale=2.0, steps=(1, 2), table=1.0):
        super().__init__()
        self.scale, self.steps = scale, steps
        self.register_buffer("table", torch.full((3,), table), persistent=False)

    def forward(self, x):
        return super().forward(x) * self.scale


def rewritten(tmp_path, monkeypatch, body):
    """A module whose class has this forward, and the name and place of all others."""
    (tmp_path / "written_net.py").write_text(f"import filter_parts\nclass Net(filter_parts.Net):\n{body}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "written_net", raising=False)
    return importlib.import_module("written_net").Net()


def test_networks_that_differ_in_a_plain_attribute_or_a_buffer_that_is_not_saved_are_unlike():
    nets = [Scaled(), Scaled(3.0), Scaled(steps=(1, 3)), Scaled(table=2.0)]
    assert len({repr(net) for net in nets}) == 1
    assert len({hash_module(net) for net in nets}) == 4
    assert hash_module(Scaled()) == hash_module(Scaled().eval())


def test_networks_that_differ_in_forward_alone_are_unlike_but_not_those_in_comments(tmp_path, monkeypatch):
    bodies = {
        "as it is": "    def forward(self, x):\n        return self.head(self.hidden(x))\n",
        "a comment": "    def forward(self, x):\n        # as ever\n\n        return self.head(self.hidden(x))\n",
        "edited": "    def forward(self, x):\n        return self.head(2 * self.hidden(x))\n",
    }
    hashes = []
    for number, body in enumerate(bodies.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        hashes.append(hash_module(nn.Sequential(rewritten(folder, monkeypatch, body))))
    assert hashes[0] == hashes[1] != hashes[2]
