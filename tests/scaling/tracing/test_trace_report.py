"""The report of a trace written by hand."""

from __future__ import annotations

import pytest
from hand_trace import recording

from bigbatch.scaling.tracing import report
from bigbatch.scaling.tracing.spans import EngineRecording
from bigbatch.scaling.tracing.trace import Trace, fastest_step
from bigbatch.scaling.workload import Workload


@pytest.fixture
def by_hand(tmp_path):
    return recording(tmp_path)


def test_horovods_panels_show_streams_and_tensors(by_hand):
    step = fastest_step(by_hand)
    figures = report.draw_step(step, "by hand")
    assert list(figures) == ["trace_horovod", "trace_horovod_timeline"]
    (streams, streams_caption), (tensors, tensors_caption) = figures.values()
    drawn = streams.svg()
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
    drawn = tensors.svg()
    for text in ("(b) Horovod", "waits for its turn", "all-reduce", "copied", ">a<", ">b<", ">c<"):
        assert text in drawn, text
    assert {"series": "all-reduce", "tensor": "a", "ms": 2.76, "end ms": 3.7} in tensors.rows
    assert "Fig. 8 (a)" in streams_caption
    assert "Fig. 8 (b)" in tensors_caption


def test_a_new_trace_takes_the_place_of_an_earlier_one(by_hand, tmp_path):
    def names(*recordings):
        traced = Trace(Workload("mlp", {}, (3, 8, 8), 10), 8, recordings, [0.1] * len(recordings))
        written = {path.name for path in report.write_report(traced, tmp_path / "out", "bigbatch scale trace mlp")}
        assert {path.name for path in (tmp_path / "out").iterdir()} == written | {"trace_mine.txt"}
        return written

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace_mine.txt").write_text("stays")
    assert "trace_horovod_timeline.svg" in names(by_hand)
    assert not any("horovod" in name for name in names(EngineRecording("ddp", by_hand.profiles)))


def test_a_busy_machine_is_admitted():
    assert report.busy_warning([0.2, 1.9]) == ""  # the second engine began when the first had just ended
    assert "load 3.5" in report.busy_warning([3.5, 2.2])
