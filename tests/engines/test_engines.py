"""Every engine trains the same network as one process, and a run goes from one engine to another."""

from __future__ import annotations

import signal
import socket

import pytest
from small import bigbatch, final_weights, small_run, write_run

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.training.loop import train

NET = {"name": "outside:Net", "dropout": 0.0}  # BatchNorm: 5 groups of 64 in a batch of 300, 3 for one rank and 2


def ranks_run(run, tmp_path, engine, expect=0):
    """The run on two ranks of an engine; its folder."""
    run = type(run)(**(run.model_dump(mode="json") | {"engine": engine}))
    done = bigbatch("train", write_run(run, tmp_path), "--ranks", 2, "--runs-dir", tmp_path / "ranks", expect=expect)
    return done, Folder(tmp_path / "ranks" / run.folder_name)


@pytest.fixture
def one_rank(monkeypatch):
    """A group of one rank, in this process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    about = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in about.items():
        monkeypatch.setenv(name, value)


def furthest(a, b):
    assert a.keys() == b.keys()
    return max((a[name].double() - b[name].double()).abs().max().item() for name in a)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Layer-wise learning rates need the norm of whole layers, wherever their parts are."""
    runs_dir = tmp_path_factory.mktemp("alone")
    run = small_run(
        model=NET, dtype="float64", global_batch=300, optimizer={"name": "lars", "lr": 0.4, "trust_coefficient": 0.02}
    )
    train(run, runs_dir=runs_dir)
    return run, final_weights(runs_dir / run.folder_name)


@pytest.mark.parametrize(
    "engine",
    [
        {"name": "fsdp"},
        {"name": "fsdp", "layer_by_layer": False, "reshard_after_forward": False},
    ],
    ids=str,
)
def test_an_engine_trains_the_same_network_as_one_process(alone, tmp_path, engine):
    run, weights = alone
    _, folder = ranks_run(run, tmp_path, engine)
    assert furthest(final_weights(folder), weights) < 1e-10


def test_divided_weights_are_saved_whole_and_go_on_in_one_process(tmp_path):
    optimizer = {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "died"), "at_step": 8}
    run = small_run(dtype="float64", model="mlp", optimizer=optimizer | {"signal_number": int(signal.SIGINT)})
    _, folder = ranks_run(run, tmp_path, "fsdp", expect=75)
    bigbatch("resume", folder.path)
    train(run, runs_dir=tmp_path)
    assert furthest(final_weights(folder), final_weights(tmp_path / run.folder_name)) < 1e-10


@pytest.mark.parametrize(
    ("options", "least", "most"),  # compressed, but not divided by the number of ranks, which would be about 0.1 off
    [
        ({"static_graph": True}, 0, 1e-10),
        ({"compression": "fp16"}, 1e-8, 1e-3),
        ({"compression": "powersgd"}, 1e-5, 0.05),
    ],
    ids=str,
)
def test_options_of_ddp_change_the_weights_by_so_much(tmp_path, options, least, most):
    run = small_run(dtype="float64", micro_batch=128)
    _, folder = ranks_run(run, tmp_path, {"name": "ddp", **options})
    train(run, runs_dir=tmp_path)
    distance = furthest(final_weights(folder), final_weights(tmp_path / run.folder_name))
    assert least <= distance <= most


@pytest.mark.parametrize(
    ("fields", "engine", "sentence"),
    [
        ({}, {"name": "ddp", "compression": "bf16"}, "does not support compression bf16"),
        ({}, {"name": "ddp", "static_graph": True}, "static_graph needs one micro-batch per rank"),
        ({"selector": "small_loss"}, {"name": "fsdp"}, "ranks call the model a different number of times"),
        ({"probes": ["ratio"]}, {"name": "fsdp"}, "probes need whole weights, but engine 'fsdp' shards them"),
    ],
    ids=["bf16", "static_graph", "selector", "probes"],
)
def test_what_an_engine_cannot_do_is_one_sentence(tmp_path, one_rank, fields, engine, sentence):
    with pytest.raises(Problem, match=sentence):
        train(small_run(engine=engine, **fields), runs_dir=tmp_path)


@pytest.mark.parametrize("name", parts.names("engines"))
def test_every_engine_offers_start_and_options(name):
    assert callable(parts.find("engines", name).start)
    assert parts.configure("engines", name).name == name
