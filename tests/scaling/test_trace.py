"""Traces written by hand: one clock, one file, one step in numbers and as a picture."""

from __future__ import annotations

import gzip
import json

import pytest
from hand_trace import SECOND_NS, crossing, mark, rank_marks, write_profile, write_timeline

from bigbatch.errors import Problem
from bigbatch.scaling.trace import merge, panels, profiler, report, seen, timeline
from bigbatch.scaling.trace.merge import Recorded


@pytest.fixture
def by_hand(tmp_path):
    """Rank 1 has another base, a second earlier, and begins its step 200 µs before rank 0."""
    first = profiler.read(write_profile(tmp_path / "0.json", rank_marks()), 0)
    second = profiler.read(write_profile(tmp_path / "1.json", rank_marks(1e6 - 200), SECOND_NS - 10**9), 1)
    return Recorded("horovod", [first, second], timeline.read(write_timeline(tmp_path / "timeline.json")))


def test_horovods_timeline_is_laid_on_the_profilers_clock(by_hand):
    # its own microsecond 2100 is 2100 + 500 after the second; the trace begins with rank 1 at 800
    events = merge.merged([by_hand])["traceEvents"]
    sent = [event for event in events if event["name"] == "ALLREDUCE"]
    assert [event["ts"] for event in sent] == [2600 - 800, 3700 - 800, 3701 - 800]
    hook = next(event for event in events if event["name"] == "bigbatch gradient b" and event["pid"] == 1)
    wait = next(event for event in events if event["name"] == "bigbatch backward" and event["pid"] == 1)
    assert hook["ts"] == 2500 - 800
    assert hook["ts"] <= sent[0]["ts"] <= sent[-1]["ts"] + sent[-1]["dur"] <= wait["ts"] + wait["dur"]
    assert next(event for event in events if event["name"] == "bigbatch step 0")["ts"] == 0


def test_the_merged_trace_is_sorted_and_named(by_hand):
    trace = merge.merged([by_hand, Recorded("ddp", by_hand.profiles)])
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
    operators = [mark("aten::mul", 3510, 3525), mark("aten::add", 3600, 3700)]  # the first ends after gradient a does
    profile = profiler.read(write_profile(tmp_path / "more.json", [*rank_marks(), *operators]), 0)
    trace = merge.merged([Recorded("horovod", [profile], by_hand.timeline)])
    assert len({(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "X"}) == 2 + 2 + 3
    assert crossing(trace) == []


def test_a_large_trace_is_packed(by_hand, tmp_path, monkeypatch):
    plain = merge.write([by_hand], tmp_path / "plain")
    monkeypatch.setattr(merge, "MOST_PLAIN_EVENTS", 10)
    packed = merge.write([by_hand], tmp_path / "packed")
    assert (plain.name, packed.name) == ("trace.json", "trace.json.gz")
    assert json.loads(gzip.decompress(packed.read_bytes())) == json.loads(plain.read_text())


def test_a_step_in_numbers(by_hand):
    step = seen.fastest("horovod", 2, by_hand.profiles[0], by_hand.timeline)
    assert (step.phases.step_us, step.phases.forward_us, step.phases.update_us) == (5000, 1000, 500)
    assert step.phases.backward_us == 3520 - 2000  # to the last own gradient
    assert step.phases.exposed_us == 5000 - 3520
    assert step.communication_us == (3000 - 2600) + (4800 - 3700)
    assert step.phases.overlapped_us == 3000 - 2600
    assert step.phases.negotiation_us == (2600 - 2510) + (3700 - 3530)
    assert step.phases.message_bytes == (4 * 1000, 4 * 256 + 8 * 32)
    queued = {bar.label: (bar.start_us, bar.end_us) for bar in step.tensors if bar.stream == "queue"}
    assert queued == {"b": (1500, 1600), "a": (2500, 2700), "c": (2490, 2701)}


def test_messages_of_torch_have_a_lane_for_each_thread_and_their_size(tmp_path):
    shapes = {"Input Dims": [[1000]], "Input type": ["float"]}
    events = [
        *rank_marks(),
        mark("gloo:all_reduce", 2600, 3600, thread=8, **shapes),
        mark("gloo:all_reduce", 3100, 4100, thread=9, **{"Input Dims": [[10, 10]], "Input type": ["double"]}),
        mark("gloo:all_reduce", 3600, 4000, thread=8, **shapes),
        mark("gloo:all_reduce", 4200, 9000, thread=8, finished=False, **shapes),  # the profiler stopped before it did
    ]
    profile = profiler.read(write_profile(tmp_path / "0.json", events), 0)
    step = seen.fastest("ddp", 2, profile, None)
    sent = [
        (bar.lane, bar.start_us, bar.end_us, bar.bytes) for bar in step.phases.bars if bar.stream == "communication"
    ]
    assert sent == [(0, 1600, 2600, 4000), (1, 2100, 3100, 800), (0, 2600, 3000, 4000)]
    assert step.communication_us == 4100 - 2600
    assert step.phases.overlapped_us == 3520 - 2600
    names = {
        event["args"]["name"]
        for event in merge.merged([Recorded("ddp", [profile])])["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {"rank 0 phases", "rank 0 compute", "rank 0 communication", "rank 0 communication 2"}


def test_the_fastest_step_is_the_one_that_is_shown(tmp_path):
    slow = [
        event | {"name": "bigbatch step 1"} if event["name"] == "bigbatch step 0" else event
        for event in rank_marks(9e3)
    ]
    slow[0]["dur"] = 7000.0
    profile = profiler.read(write_profile(tmp_path / "0.json", [*slow, *rank_marks()]), 0)
    assert seen.fastest("ddp", 2, profile, None).number == 0
    assert seen.typical_step_us(profile) == 6000


def test_horovods_panels_show_streams_and_tensors(by_hand):
    step = seen.fastest("horovod", 2, by_hand.profiles[0], by_hand.timeline)
    streams, tensors = panels.panels(step, "by hand")
    assert (streams.name, tensors.name) == ("trace_horovod", "trace_horovod_timeline")
    drawn = streams.chart.svg()
    for text in (
        "(a) One step of horovod on 2 ranks",
        "compute",
        "negotiation",
        "communication",
        "backward",
        "waiting",
    ):
        assert text in drawn, text
    assert "3.9 KiB" in drawn  # 4000 bytes, on their bar
    drawn = tensors.chart.svg()
    for text in ("(b) Horovod", "waits for its turn", "all-reduce", "copied", ">a<", ">b<", ">c<"):
        assert text in drawn, text
    assert {"series": "all-reduce", "tensor": "a", "ms": 2.76, "end ms": 3.7} in tensors.chart.rows
    assert "Fig. 8 (a)" in streams.caption
    assert "Fig. 8 (b)" in tensors.caption


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": []}', '[{"ph": "E", "ts": 1, "pid": 1}]'])
def test_files_that_are_no_traces_are_named(tmp_path, text):
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(Problem, match=r"some\.json is no trace"):
        profiler.read(path, 0)
    with pytest.raises(Problem, match=r"some\.json is no timeline"):
        timeline.read(path)


def test_a_new_trace_takes_the_place_of_an_earlier_one(by_hand, tmp_path):
    def names(*recordings):
        traced = report.Traced("mlp", 8, (3, 8, 8), recordings, [0.1] * len(recordings), {})
        written = {path.name for path in report.write(traced, tmp_path / "out", "bigbatch scale trace mlp")}
        assert {path.name for path in (tmp_path / "out").iterdir()} == written | {"trace_mine.txt"}
        return written

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace_mine.txt").write_text("stays")
    assert "trace_horovod_timeline.svg" in names(by_hand)
    assert not any("horovod" in name for name in names(Recorded("ddp", by_hand.profiles)))


def test_a_busy_machine_is_admitted():
    assert report.busy_words([0.2, 1.9]) == ""  # the second engine began when the first had just ended
    assert "load 3.5" in report.busy_words([3.5, 2.2])
