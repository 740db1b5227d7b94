"""Interleaved rounds: every configuration once per round, its processes started anew, the order rotated.

A disturbance of the machine then affects all configurations alike, and the best round of each is compared.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

from bigbatch.scaling.measurement.request import StepCounts
from bigbatch.scaling.measurement.timing_task import RankTiming, TimingTask
from bigbatch.scaling.phases import Bar, StepPhases, covered_time
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.simulation import ENGINES
from bigbatch.scaling.tracing.horovod_timeline import HorovodTimeline, read_timeline
from bigbatch.scaling.workload import EngineConfiguration, Workload


@dataclass(frozen=True)
class MeasuredRound:
    """One start of one configuration. `others_cores`: the cores that other processes used meanwhile, where known."""

    configuration: EngineConfiguration
    ranks: tuple[RankTiming, ...]
    others_cores: float | None
    load_1min: float
    number: int = 0

    @property
    def wall_s(self) -> float:
        """The median step; a step ends when its slowest rank does."""
        seconds: float = median(max(steps) for steps in zip(*(rank.wall_s for rank in self.ranks), strict=True))
        return seconds

    @property
    def cpu_s(self) -> float:
        """The CPU seconds per rank of the median step."""
        seconds: float = median(mean(steps) for steps in zip(*(rank.cpu_s for rank in self.ranks), strict=True))
        return seconds

    @property
    def without_communication_s(self) -> list[float]:
        """Each step without communication; it ends when its slowest rank does."""
        return [max(steps) for steps in zip(*(rank.without_communication_s for rank in self.ranks), strict=True)]


def rotate(configurations: Sequence[EngineConfiguration], number: int) -> list[EngineConfiguration]:
    shift = number % len(configurations)
    return [*configurations[shift:], *configurations[:shift]]


def measure_round(
    model: Workload,
    configuration: EngineConfiguration,
    counts: StepCounts,
    hosts: Sequence[str] = (),
    *,
    with_timeline: bool = False,
) -> MeasuredRound:
    """Start the ranks of a configuration and time them; `with_timeline`: Horovod's timeline completes the phases."""
    load_1min = os.getloadavg()[0]
    simulated = configuration.engine in ENGINES and configuration.ranks > 1
    with TemporaryDirectory() as name, _OtherProcesses() as others:
        timeline = Path(name) / "timeline.json"
        run = model.run(configuration, **({"timeline": str(timeline)} if with_timeline else {}))
        task = TimingTask(
            run=run.model_dump(mode="json"),
            warmup_steps=counts.warmup_steps,
            timed_steps=counts.timed_steps,
            recorded_steps=counts.recorded_steps,
            steps_without_communication=counts.steps_without_communication if simulated else 0,
        )
        results = run_on_ranks(task, configuration.ranks, Path(name), label=configuration.label, hosts=hosts)
        ranks = [RankTiming.model_validate_json(result) for result in results]
        if with_timeline:  # it is rank 0's; others send and wait at the same time
            timed = read_timeline(timeline)
            steps = [add_timeline(step, timed) for step in ranks[0].steps]
            ranks[0] = ranks[0].model_copy(update={"steps": steps})
    return MeasuredRound(configuration, tuple(ranks), None if hosts else others.cores, load_1min)


def add_timeline(step: StepPhases, timeline: HorovodTimeline) -> StepPhases:
    """Return the phases with the buffers that Horovod sent, and the time of negotiating them."""
    ready_us = step.forward_us + step.backward_us
    end_ns = step.started_ns + int(1e3 * (ready_us + (step.exposed_us or 0.0)))
    within = timeline.between(step.started_ns, end_ns)
    sent = [((one.start_ns - step.started_ns) / 1e3, (one.end_ns - step.started_ns) / 1e3) for one in within.buffers()]
    return replace(
        step,
        overlapped_us=None if step.exposed_us is None else covered_time(sent, until=ready_us),
        negotiation_us=1e-3 * sum(end - start for start, end in within.negotiations()),
        bars=tuple(
            Bar("communication", f"{len(buffer.tensors)} tensors", start_us, end_us, buffer.bytes)
            for (start_us, end_us), buffer in zip(sent, within.buffers(), strict=True)
        ),
    )


class _OtherProcesses:
    """How many cores processes other than our own children used within the block; None where /proc is missing."""

    cores: float | None = None

    def __enter__(self) -> _OtherProcesses:
        self._before = time.perf_counter(), _machine_cpu_s(), _children_cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        started, machine_before, children_before = self._before
        machine = _machine_cpu_s()
        if machine is None or machine_before is None:
            return
        others_s = machine - machine_before - (_children_cpu_s() - children_before)
        self.cores = max(0.0, others_s / (time.perf_counter() - started))


def _children_cpu_s() -> float:
    """CPU seconds of children that ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _machine_cpu_s() -> float | None:
    """CPU seconds that the whole machine has been busy, and those that its hypervisor took from it."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
