"""`bigbatch scale trace` as a user meets it, on real ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from cyclopts import CycloptsError
from hand_trace import crossing

from bigbatch.cli import app
from bigbatch.engines import horovod
from bigbatch.errors import Problem
from bigbatch.launch import processes
from bigbatch.scaling.tracing import report, spans
from bigbatch.scaling.tracing import trace as tracing
from bigbatch.scaling.tracing.trace import Trace, TraceOptions

CNN = ("cnn", "--sample", "1,24,24", "--batch", 64, "--set", "model.hidden=128")


def trace(*arguments: object) -> int:
    words = ["scale", "trace", *map(str, arguments)]
    return app(words, result_action="return_value", exit_on_error=False, print_error=False)


def test_two_ranks_of_ddp(tmp_path, monkeypatch, capsys):
    written: list[Trace] = []
    monkeypatch.setattr(report, "print_trace", written.append)
    out = tmp_path / "out"
    trace(*CNN, "--engines", "ddp", "--steps", 2, "--out", out)
    (recorded,) = written[0].recordings

    overlapping = 0
    for profile in recorded.profiles:
        assert len(profile.steps) == 2
        assert any(span.track == profile.computing_thread for span in profile.spans)
        for step in profile.steps:
            forward, *gradients, update = (bar for bar in step.bars if bar.stream == "compute")
            assert (forward.label, update.label) == ("forward", "update")
            assert {bar.label for bar in gradients} == {
                f"{layer}.{what}" for layer in ("conv1.0", "conv2.0", "hidden", "head") for what in ("weight", "bias")
            }
            inside = [one for one in profile.collectives() if step.started_ns <= one.start_ns < step.end_ns]
            sent = spans.with_communication(step, inside).messages
            assert sum(message.bytes for message in sent) == 4 * (160 + 4640 + 128 * 1153 + 10 * 129)
            assert len(sent) > 1  # buckets
            for message in sent:  # a gradient reaches its bucket just before the hook that records it
                assert gradients[0].start_us < message.start_us < update.start_us
                overlapping += message.start_us < gradients[-1].end_us
    assert overlapping  # some bucket was on its way while a rank still computed

    found = json.loads((out / "trace.json").read_text())
    processes = {event["args"]["name"] for event in found["traceEvents"] if event["name"] == "process_name"}
    assert processes == {"ddp rank 0", "ddp rank 1"}
    moments = [event["ts"] for event in found["traceEvents"] if event["ph"] != "M"]
    assert moments == sorted(moments)
    assert moments[0] == 0
    assert crossing(found) == []
    assert any(event["name"] == "aten::convolution_backward" for event in found["traceEvents"])
    assert "(c) One step of ddp on 2 ranks" in (out / "trace_ddp.svg").read_text()
    page = (out / "trace.html").read_text()
    for text in ("Fig. 8 (c)", "Perfetto", 'href="trace.json"', "overlap", "bigbatch scale"):
        assert text in page, text
    assert {path.name for path in out.iterdir()} == {
        "trace.json", "trace_steps.json", "trace_ddp.svg", "trace_ddp.png", "trace_ddp.csv", "trace.html",
    }  # fmt: skip
    assert capsys.readouterr().out.strip() == str(out / "trace.html")


@pytest.mark.horovod
def test_a_gradient_of_horovod_travels_between_its_hook_and_the_wait(tmp_path, monkeypatch):
    written: list[Trace] = []
    monkeypatch.setattr(report, "print_trace", written.append)
    out = tmp_path / "out"
    trace(*CNN, "--engines", "horovod,local", "--steps", 3, "--out", out)
    recorded = written[0].recordings[0]
    assert recorded.timeline is not None
    profile = recorded.profiles[0]
    seen = 0
    for step in profile.steps:
        _, *gradients, update = (bar for bar in step.bars if bar.stream == "compute")
        activities = recorded.timeline.between(step.started_ns, step.end_ns).activities
        update_ns = step.started_ns + round(1e3 * update.start_us)
        for bar in gradients:
            own = [one for one in activities if one.track == bar.label and one.name == "ALLREDUCE"]
            assert len(own) == 1
            begun_ns = step.started_ns + round(1e3 * bar.start_us)
            assert begun_ns <= own[0].start_ns <= own[0].end_ns <= update_ns
            seen += 1
    assert seen == 3 * 8
    step = written[0].steps[0]
    assert sum(step.phases.message_bytes) == 4 * (160 + 4640 + 128 * 1153 + 10 * 129)
    names = {path.name for path in out.iterdir()}
    assert {"trace_horovod.svg", "trace_horovod_timeline.png", "trace_local.svg"} <= names
    found = json.loads((out / "trace.json").read_text())
    processes = {event["args"]["name"] for event in found["traceEvents"] if event["name"] == "process_name"}
    assert processes == {"horovod rank 0", "horovod rank 1", "horovod timeline of rank 0", "local rank 0"}
    assert crossing(found) == []
    for text in ("Fig. 8 (a)", "Fig. 8 (b)", "conv1.0.weight"):
        assert text in (out / "trace.html").read_text(), text


def test_horovod_is_traced_by_default_where_it_is_installed(tmp_path, monkeypatch):
    recorded = []
    monkeypatch.setattr(tracing, "record_engine", lambda model, one, steps: recorded.append(one.engine))
    monkeypatch.setattr(horovod, "check_installed", lambda: None)
    options = TraceOptions(model="mlp", out=tmp_path / "out")
    monkeypatch.setitem(sys.modules, "horovod", None)
    tracing.trace(options)
    assert recorded == ["ddp"]
    monkeypatch.setitem(sys.modules, "horovod", types.ModuleType("horovod"))
    sys.modules["horovod"].__spec__ = ModuleSpec("horovod", None)
    tracing.trace(options)
    assert recorded == ["ddp", "ddp", "horovod"]


WRONG = [
    (("mlp", "--engines", "dpd"), "no engine called 'dpd'; did you mean 'ddp'"),
    (("mlp", "--engines", ","), "no engine was named"),
    (("mpl",), "no model called 'mpl'; did you mean 'mlp'"),
    (("vgg16",), "'vgg16' is a table of layers"),
    (("mine.csv",), "'mine.csv' is a table of layers"),
    (("mlp", "--ranks", 0), 'Invalid value "0" for --ranks'),
    (("mlp", "--steps", 0), 'Invalid value "0" for --steps'),
    (("mlp", "--batch", 0), 'Invalid value "0" for --batch'),
    (("mlp", "--sample", "3x32"), "--sample 3x32 is not a shape"),
    (("mlp", "--classes", 0), "use numbers from 1 on"),
    (("mlp", "--set", "machine.nodes=3"), "machine.nodes is for a simulation"),
    (("mlp", "--set", "ddp.bukket_mb=3"), "did you mean 'bucket_mb'"),
    (("mlp", "--set", "model.depth=3"), "has no option 'depth'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_wrong_input_starts_and_leaves_nothing(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.setattr(processes, "rank_environment", lambda ranks: pytest.fail("ranks were started"))
    with pytest.raises((Problem, CycloptsError)) as told:
        trace(*arguments, "--out", tmp_path / "out")
    assert sentence in str(told.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["out", "out/in/it"])
def test_a_file_is_no_folder(tmp_path, monkeypatch, out):
    monkeypatch.setattr(tracing, "record_engine", lambda *_: pytest.fail("ranks were started"))
    (tmp_path / "out").write_text("mine")
    with pytest.raises(Problem, match="out is a file, name a new or an existing folder"):
        trace("mlp", "--out", tmp_path / out)
    assert (tmp_path / "out").read_text() == "mine"


def test_a_missing_horovod_is_found_out_before_ddp_has_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod", None)
    monkeypatch.setattr(tracing, "record_engine", lambda *_: pytest.fail("ranks were started"))
    with pytest.raises(Problem, match="make horovod"):
        trace("mlp", "--engines", "ddp,horovod", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_rank_that_fails_is_named_with_its_last_words(tmp_path, capsys):
    with pytest.raises(Problem, match=r"local 1x8: 0 of 1 ranks returned a result .*this network is broken"):
        trace("traced_models:Failing", "--engines", "local", "--out", tmp_path / "out")
    assert "this network is broken" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("engine", ["ddp", pytest.param("horovod", marks=pytest.mark.horovod)])
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path, engine):
    temporary, pids = tmp_path / "temporary", tmp_path / "pids"
    temporary.mkdir()
    pids.mkdir()
    command = [sys.executable, "-m", "bigbatch", "scale", "trace", "traced_models:Interrupting"]
    done = subprocess.run(
        [*command, "--engines", engine, "--set", f"model.pids={pids}", "--out", str(tmp_path / "out")],
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert list(temporary.iterdir()) == []
    ended = [int(path.name) for path in pids.iterdir()]
    assert ended
    for pid in ended:
        assert not Path(f"/proc/{pid}").exists()
