"""Interleaved rounds: every case once a round, its processes started anew, the order rotated from round to round.

What disturbs the machine for a while then disturbs all cases alike, and the best round of each is compared.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bigbatch.scaling.measured import horovods_notes, starts
from bigbatch.scaling.measured.cases import Case, Subject
from bigbatch.scaling.measured.rank_program import Task
from bigbatch.scaling.measured.timings import Round
from bigbatch.scaling.simulation import ENGINES


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    rounds: int = 5
    warmup_steps: int = 3
    timed_steps: int = 10
    noted_steps: int = 3
    silent_steps: int = 0  # for a simulation to start from


def rotated(cases: Sequence[Case], number: int) -> list[Case]:
    shift = number % len(cases)
    return [*cases[shift:], *cases[:shift]]


def measure(
    subject: Subject,
    cases: Sequence[Case],
    plan: Plan,
    hosts: Sequence[str] = (),
    said: Callable[[str], None] = lambda _: None,
    each_round: Callable[[int], None] = lambda _: None,
) -> Iterator[list[Round]]:
    """Round by round, all cases. `each_round` may measure something else in turn with them."""
    for number in range(plan.rounds):
        each_round(number)
        found = []
        for case in rotated(cases, number):
            one = once(subject, case, number, plan, hosts)
            said(f"round {number + 1} of {plan.rounds}: {case.label}: {1e3 * one.wall_s:.1f} ms a step")
            found.append(one)
        yield found


def once(
    subject: Subject, case: Case, number: int, plan: Plan, hosts: Sequence[str] = (), *, traced: bool = False
) -> Round:
    """Start a case's ranks and wait for what they measure; `traced`: Horovod's timeline tells of the notes."""
    load_1min = os.getloadavg()[0]
    with TemporaryDirectory() as folder, Neighbours() as neighbours:
        timeline = Path(folder) / "timeline.json"
        run = subject.run(case, **({"timeline": str(timeline)} if traced else {}))
        task = Task(
            run=run.model_dump(mode="json"),
            warmup_steps=plan.warmup_steps,
            timed_steps=plan.timed_steps,
            noted_steps=plan.noted_steps,
            silent_steps=plan.silent_steps if case.engine in ENGINES and case.ranks > 1 else 0,
            folder=None if hosts else folder,
        )
        records = starts.records(case, task, Path(folder), hosts)
        if traced:
            records = horovods_notes.added(records, timeline)
    others = None if hosts else neighbours.cores
    return Round(case, number, tuple(records), others, load_1min)


class Neighbours:
    """How many cores processes other than our own children used within the block; None where /proc does not tell."""

    cores: float | None = None

    def __enter__(self) -> Neighbours:
        self._before = time.perf_counter(), _busy_s(), _children_s()
        return self

    def __exit__(self, *_: object) -> None:
        started, busy_before, children_before = self._before
        busy = _busy_s()
        if busy is None or busy_before is None:
            return
        others_s = busy - busy_before - (_children_s() - children_before)
        self.cores = max(0.0, others_s / (time.perf_counter() - started))


def _children_s() -> float:
    """CPU seconds of children that ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _busy_s() -> float | None:
    """CPU seconds that the whole machine has been busy, and those that its host took from it."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
