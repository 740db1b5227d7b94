"""One step of a trace written by hand, in numbers."""

from __future__ import annotations

import pytest
from hand_trace import event, profiler_trace, recording, step

from bigbatch.scaling.tracing.chrome_trace import merge_recordings
from bigbatch.scaling.tracing.spans import EngineRecording
from bigbatch.scaling.tracing.trace import fastest_step


@pytest.fixture
def by_hand(tmp_path):
    return recording(tmp_path)


def test_a_step_in_numbers(by_hand):
    found = fastest_step(by_hand)
    assert (found.phases.step_us, found.phases.forward_us, found.phases.update_us) == (5000, 1000, 1000)
    assert found.phases.backward_us == 3520 - 2000  # to the last own gradient
    assert found.phases.exposed_us == 5000 - 3520
    assert found.phases.communication_us == (3000 - 2600) + (4800 - 3700)
    assert found.phases.overlapped_us == 3000 - 2600
    assert found.phases.negotiation_us == (2600 - 2510) + (3700 - 3530)
    assert found.phases.message_bytes == (4 * 1000, 4 * 256 + 8 * 32)
    queued = {bar.label: (bar.start_us, bar.end_us) for bar in found.tensors if bar.stream == "queue"}
    assert queued == {"b": (1510, 1600), "a": (2520, 2700), "c": (2500, 2701)}


def test_messages_of_torch_have_a_lane_for_each_thread_and_their_size(tmp_path):
    shapes = {"Input Dims": [[1000]], "Input type": ["float"]}
    events = [
        event("gloo:all_reduce", 2600, 3600, thread=8, **shapes),
        event("gloo:all_reduce", 3100, 4100, thread=9, **{"Input Dims": [[10, 10]], "Input type": ["double"]}),
        event("gloo:all_reduce", 3600, 4000, thread=8, **shapes),
        event("gloo:all_reduce", 4200, 9000, thread=8, finished=False, **shapes),  # the profiler stopped before it did
    ]
    profile = profiler_trace(events)
    found = fastest_step(EngineRecording("ddp", [profile]))
    sent = [
        (bar.lane, bar.start_us, bar.end_us, bar.bytes) for bar in found.phases.bars if bar.stream == "communication"
    ]
    assert sent == [(0, 1600, 2600, 4000), (1, 2100, 3100, 800), (0, 2600, 3000, 4000)]
    assert found.phases.communication_us == 4100 - 2600
    assert found.phases.overlapped_us == 3520 - 2600
    names = {
        event["args"]["name"]
        for event in merge_recordings([EngineRecording("ddp", [profile])])["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {"rank 0 phases", "rank 0 compute", "rank 0 communication", "rank 0 communication 2"}


def test_the_fastest_step_is_the_one_that_is_shown():
    profile = profiler_trace([], steps=(step(9e3, step_us=7000.0), step(20e3)))
    assert fastest_step(EngineRecording("ddp", [profile])).number == 1
