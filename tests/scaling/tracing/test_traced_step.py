"""One step of a trace written by hand, in numbers."""

from __future__ import annotations

import pytest
from hand_trace import mark, profiler_trace, rank_marks, recording

from bigbatch.scaling.tracing.chrome_trace import merge_recordings
from bigbatch.scaling.tracing.spans import EngineRecording
from bigbatch.scaling.tracing.traced_step import fastest_step


@pytest.fixture
def by_hand(tmp_path):
    return recording(tmp_path)


def test_a_step_in_numbers(by_hand):
    step = fastest_step(by_hand)
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
    profile = profiler_trace(events)
    step = fastest_step(EngineRecording("ddp", [profile]))
    sent = [
        (bar.lane, bar.start_us, bar.end_us, bar.bytes) for bar in step.phases.bars if bar.stream == "communication"
    ]
    assert sent == [(0, 1600, 2600, 4000), (1, 2100, 3100, 800), (0, 2600, 3000, 4000)]
    assert step.communication_us == 4100 - 2600
    assert step.phases.overlapped_us == 3520 - 2600
    names = {
        event["args"]["name"]
        for event in merge_recordings([EngineRecording("ddp", [profile])])["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {"rank 0 phases", "rank 0 compute", "rank 0 communication", "rank 0 communication 2"}


def test_the_fastest_step_is_the_one_that_is_shown(tmp_path):
    slow = [
        event | {"name": "bigbatch step 1"} if event["name"] == "bigbatch step 0" else event
        for event in rank_marks(9e3)
    ]
    slow[0]["dur"] = 7000.0
    profile = profiler_trace([*slow, *rank_marks()])
    assert fastest_step(EngineRecording("ddp", [profile])).number == 0
    assert profile.median_step_us == 6000
