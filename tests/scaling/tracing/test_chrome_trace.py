"""Traces written by hand: one clock, one file."""

from __future__ import annotations

import gzip
import json

import pytest
from hand_trace import SECOND_NS, crossing, event, profiler_trace, recording

from bigbatch.errors import Problem
from bigbatch.scaling.tracing import chrome_trace
from bigbatch.scaling.tracing.chrome_trace import merge_recordings
from bigbatch.scaling.tracing.spans import EngineRecording, parse_profiler_trace, read_timeline


@pytest.fixture
def by_hand(tmp_path):
    return recording(tmp_path)


def test_horovods_timeline_is_laid_on_the_profilers_clock(by_hand):
    # its own microsecond 2100 is 2100 + 500 after the second; the trace begins with rank 1 at 800
    events = merge_recordings([by_hand])["traceEvents"]
    sent = [event for event in events if event["name"] == "ALLREDUCE"]
    assert [event["ts"] for event in sent] == [2600 - 800, 3700 - 800, 3701 - 800]
    gradient = next(event for event in events if event["name"] == "gradient b" and event["pid"] == 1)
    update = next(event for event in events if event["name"] == "update" and event["pid"] == 1)
    ready = gradient["ts"] + gradient["dur"]
    assert ready == 2510 - 800
    assert ready <= sent[0]["ts"] <= sent[-1]["ts"] + sent[-1]["dur"] <= update["ts"] == 5000 - 800
    assert next(event for event in events if event["name"] == "step 0")["ts"] == 0


def test_the_merged_trace_is_sorted_and_named(by_hand):
    trace = merge_recordings([by_hand, EngineRecording("ddp", by_hand.profiles)])
    names = {(event["pid"], event["args"]["name"]) for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert names == {
        (1, "horovod rank 0"), (2, "horovod rank 1"), (3, "horovod timeline of rank 0"),
        (4, "ddp rank 0"), (5, "ddp rank 1"),
    }  # fmt: skip
    threads = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {"rank 0 compute", "rank 1 compute", "Horovod negotiation", "Horovod communication", "tensor a"} <= threads
    timed = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in timed)
    assert trace["otherData"]["ddp began, ns since 1970"] == str(SECOND_NS + 800_000)


def test_events_of_one_row_lie_within_each_other_or_apart(by_hand, tmp_path):
    # the first ends after gradient a does
    profile = profiler_trace([event("aten::mul", 3510, 3525), event("aten::add", 3600, 3700)])
    trace = merge_recordings([EngineRecording("horovod", [profile], by_hand.timeline)])
    assert len({(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "X"}) == 2 + 2 + 3
    assert crossing(trace) == []


def test_a_large_trace_is_compressed(by_hand, tmp_path, monkeypatch):
    plain = chrome_trace.write_chrome_trace([by_hand], tmp_path / "plain")
    monkeypatch.setattr(chrome_trace, "MOST_PLAIN_EVENTS", 10)
    compressed = chrome_trace.write_chrome_trace([by_hand], tmp_path / "compressed")
    assert (plain.name, compressed.name) == ("trace.json", "trace.json.gz")
    assert json.loads(gzip.decompress(compressed.read_bytes())) == json.loads(plain.read_text())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": []}', '[{"ph": "E", "ts": 1, "pid": 1}]'])
def test_files_that_are_no_traces_are_named(tmp_path, text):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(Problem, match="rank 3 returned no trace"):
        parse_profiler_trace(text, 3)
    with pytest.raises(Problem, match=r"some\.json is not a timeline"):
        read_timeline(path)
