"""What Horovod's timeline says of the steps with notes: buffers that were sent, and the time of agreeing on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bigbatch.scaling.measured.notes import Noted, Sent, overlapped_s
from bigbatch.scaling.measured.rank_program import Record
from bigbatch.scaling.trace.timeline import Timeline, read


def added(records: Sequence[Record], path: Path) -> list[Record]:
    """The records with it. The timeline is rank 0's; others send and wait at the same time."""
    timeline = read(path)
    first = next(record for record in records if record.rank == 0)
    noted = [_with_timeline(step, timeline) for step in first.noted]
    return [record.model_copy(update={"noted": noted}) if record.rank == 0 else record for record in records]


def _with_timeline(step: Noted, timeline: Timeline) -> Noted:
    ready_s = step.forward_s + step.backward_s
    end_ns = step.started_ns + int(1e9 * (ready_s + (step.exposed_s or 0.0)))
    within = timeline.between(step.started_ns, end_ns)

    def seconds(moment_ns: int) -> float:
        return 1e-9 * (moment_ns - step.started_ns)

    sent = [Sent(start_s=seconds(one.start_ns), end_s=seconds(one.end_ns), bytes=one.bytes) for one in within.buffers()]
    asked_s = 1e-9 * sum(end - start for start, end in within.negotiating())
    overlapped = None if step.exposed_s is None else overlapped_s(sent, ready_s)
    return step.model_copy(update={"sent": sent, "negotiation_s": asked_s, "overlapped_s": overlapped})
