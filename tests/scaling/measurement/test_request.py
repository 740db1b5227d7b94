"""What `bigbatch scale measure` is asked for: configurations, or one sentence before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from bigbatch.cli import app
from bigbatch.engines import horovod
from bigbatch.errors import Notice, Problem
from bigbatch.scaling import hosts
from bigbatch.scaling.measurement.request import (
    MeasurementOptions,
    MeasurementRequest,
    build_comparisons,
    build_request,
    build_sweeps,
)


def scale(*arguments: object) -> int:
    words = ["scale", *map(str, arguments)]
    return app(words, result_action="return_value", exit_on_error=False, print_error=False)


def test_weak_and_strong_scaling_ask_for_the_right_batches():
    found = build_comparisons(["local", "ddp"], [1, 2, 4], 8)
    pairs = [(one.scaling, one.alone.rank_batch, one.ranks.ranks, one.ranks.rank_batch) for one in found]
    assert pairs == [("weak", 8, 2, 8), ("weak", 8, 4, 8), ("strong", 32, 2, 16), ("strong", 32, 4, 8)]


def test_sweeps_change_one_setting_of_the_engines_at_hand():
    found = build_sweeps(["local", "ddp", "horovod"], 2, 8, 4 * 2**20)
    values = {(sweep.engine, sweep.setting): list(sweep.values) for sweep in found}
    assert found[0].configurations[1].settings == (("bucket_mb", 0.5),)
    assert values["ddp", "bucket_mb"] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert values["horovod", "cycle_ms"] == [1.0, 2.5, 5.0, 10.0, 20.0]
    assert values["horovod", "fusion_mb"][0] == 0
    assert [sweep.engine for sweep in build_sweeps(["ddp"], 2, 8, 4 * 2**20)] == ["ddp"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--ranks", "0"], "--ranks must be at least 1, got 0"),
        (["--ranks", "two"], "--ranks two is not a list of numbers"),
        (["--batch", "0"], 'Invalid value "0" for --batch. Must be >= 1'),
        (["--rounds", "0"], 'Invalid value "0" for --rounds. Must be >= 1'),
        (["--steps", "-1"], 'Invalid value "-1" for --steps. Must be >= 1'),
        (["--engines", "dpd"], "no engine called 'dpd'; did you mean 'ddp'?"),
        (["--engines", ","], "no engine was named"),
        (["--sample", "large"], "--sample large is not a shape"),
        (["--set", "ddp.bukket_mb=1"], "has no option 'bukket_mb'; did you mean 'bucket_mb'?"),
        (["--set", "machine.nodes=3"], "machine.nodes is for a simulation"),
        (["--set", "dpd.bucket_mb=1"], "is for 'dpd'; did you mean 'ddp'?"),
        (["--hosts", "a,-oProxyCommand=x"], "'-oProxyCommand=x', which is not a host name"),
        (["--hosts", "a,a"], "names a host twice"),
        (["--hosts", "a,b", "--ranks", "3"], "3 ranks do not divide over 2 hosts"),
        (["--hosts", "netns:no-such-namespace"], "host 'netns:no-such-namespace' cannot be used"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engines = [] if "--engines" in arguments else ["--engines", "ddp"]
    sample = [] if "--sample" in arguments else ["--sample", "1,8,8"]
    with pytest.raises((Problem, CycloptsError)) as caught:
        scale("measure", "mlp", *engines, *sample, *arguments, "--out", "o")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("mpl", "no model called 'mpl'; did you mean 'mlp'?"),
        ("vgg16", "'vgg16' is a table of layers and cannot be run"),
        ("mine.csv", "'mine.csv' is a table of layers and cannot be run"),
    ],
)
def test_what_is_no_model_is_one_sentence(model, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Problem, match=sentence.replace("?", r"\?")):
        scale("measure", model, "--engines", "ddp", "--out", "o")
    assert not Path("o").exists()


@pytest.mark.parametrize("out", ["o", "o/in/it"])
def test_an_out_that_cannot_be_made_is_refused_before_anything_is_measured(tmp_path, out):
    (tmp_path / "o").write_text("mine")
    with pytest.raises(Problem, match="o is a file, name a new or an existing folder"):
        scale("measure", "mlp", "--engines", "ddp", "--out", tmp_path / out)
    assert (tmp_path / "o").read_text() == "mine"


def request(engines: tuple[str, ...] = (), ranks: str = "1,2", hosts: str = "") -> MeasurementRequest:
    options = MeasurementOptions(
        model="mlp", engines=engines, ranks=ranks, sample="1,8,8", rounds=1, steps=1, hosts=hosts
    )
    return build_request(options)


def test_more_ranks_than_cores_are_said_in_plain_words():
    with pytest.warns(Notice, match=r"64 ranks share \d+ cores: they take turns"):
        request(("ddp",), "64")


def test_other_hosts_are_measured_without_horovod(monkeypatch):
    monkeypatch.setattr(hosts, "check_reachable", lambda _: None)  # that they can be reached
    assert {one.engine for one in request(hosts="a,b").configurations} == {"local", "ddp"}
    with pytest.raises(Problem, match="leave horovod out of --engines"):
        monkeypatch.setattr(horovod, "check_installed", lambda: None)
        request(("ddp,horovod",), hosts="a,b")


def test_without_horovod_the_others_are_measured_unless_it_was_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)  # as if it were not installed
    with pytest.warns(Notice, match="horovod is left out.*make horovod"):
        assert {one.engine for one in request().configurations} == {"local", "ddp"}
    with pytest.raises(Problem, match="make horovod"):
        request(("ddp,horovod",))
