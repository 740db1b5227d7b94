"""Interleaved rounds: every configuration once per round, its processes started anew, the order rotated.

A disturbance of the machine then affects all configurations alike, and the best round of each is compared. Where a
simulation is to start from them, a rank also takes steps without communication, of a model of its own, before and after
the timed steps: the same step may take a fifth longer in the next process.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, median

from pydantic import BaseModel
from torch.nn.parallel import DistributedDataParallel

from bigbatch.engines import Engine
from bigbatch.run import Run
from bigbatch.scaling.measurement.request import StepCounts
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.ranks import run_on_ranks
from bigbatch.scaling.simulation import ENGINES
from bigbatch.scaling.stepper import Stepper, barrier, record_steps, without_communication
from bigbatch.scaling.tracing.spans import add_timeline
from bigbatch.scaling.workload import EngineConfiguration, Workload


class RankTiming(BaseModel):
    """What one rank measured. Timed steps have wall and CPU seconds only; CPU time is that of all its threads."""

    rank: int
    ranks: int
    host: str
    wall_s: list[float]
    cpu_s: list[float]
    without_communication_s: list[float] = []  # steps that all ranks begin together
    steps: list[StepPhases]  # the recorded ones, with their communication
    bucket_bytes: list[int]
    load_1min: float


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
        return float(median(map(max, zip(*(rank.wall_s for rank in self.ranks), strict=True))))

    @property
    def cpu_s(self) -> float:
        """The CPU seconds per rank of the median step."""
        return float(median(map(mean, zip(*(rank.cpu_s for rank in self.ranks), strict=True))))

    @property
    def without_communication_s(self) -> list[float]:
        """Each step without communication; it ends when its slowest rank does."""
        return list(map(max, zip(*(rank.without_communication_s for rank in self.ranks), strict=True)))


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
    load_1min, started, others_s = os.getloadavg()[0], time.perf_counter(), _others_cpu_s()
    if configuration.engine not in ENGINES or configuration.ranks == 1:
        counts = replace(counts, steps_without_communication=0)
    options = {"counts": asdict(counts)}
    found = run_on_ranks(time_steps, model, configuration, options=options, hosts=hosts, with_timeline=with_timeline)
    ranks = [RankTiming.model_validate_json(text) for text in found.texts]
    if found.timeline:  # it is rank 0's; others send and wait at the same time
        steps = [add_timeline(step, found.timeline) for step in ranks[0].steps]
        ranks[0] = ranks[0].model_copy(update={"steps": steps})
    cores = None
    if not hosts and others_s is not None:
        cores = max(0.0, ((_others_cpu_s() or 0.0) - others_s) / (time.perf_counter() - started))
    return MeasuredRound(configuration, tuple(ranks), cores, load_1min)


def _others_cpu_s() -> float | None:
    """CPU seconds of all processes but our children that ended, and of the hypervisor; None where /proc is missing."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, lines.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy_s = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy_s - children.ru_utime - children.ru_stime


def time_steps(run: Run, engine: Engine, counts: Mapping[str, int]) -> str:
    """On each rank: time and record steps, and return a RankTiming."""
    load_1min, steps = os.getloadavg()[0], StepCounts(**counts)  # the load before these steps add to it
    half = range(steps.steps_without_communication // 2)
    stepper = Stepper(run, engine)
    quiet = Stepper(run, without_communication(run, engine)) if half else None
    for _ in range(steps.warmup_steps):
        stepper.step()
        if quiet:
            quiet.step()

    def time_quiet_steps() -> list[float]:
        """Time half of the steps without communication; all ranks begin each together."""
        return [_time_step(quiet, engine)[0] for _ in half] if quiet else []

    quiet_s = time_quiet_steps()
    barrier(engine)
    times = [_time_step(stepper) for _ in range(steps.timed_steps)]
    quiet_s += time_quiet_steps()
    recorded = record_steps(stepper, steps.recorded_steps)
    return RankTiming(
        rank=engine.rank,
        ranks=engine.world_size,
        host=socket.gethostname(),
        wall_s=[wall_s for wall_s, _ in times],
        cpu_s=[cpu_s for _, cpu_s in times],
        without_communication_s=quiet_s,
        steps=[replace(step, bars=tuple(step.messages)) for step in recorded],
        bucket_bytes=_bucket_bytes(stepper),
        load_1min=load_1min,
    ).model_dump_json()


def _time_step(stepper: Stepper, begin_with: Engine | None = None) -> tuple[float, float]:
    """Return the wall and CPU seconds of one step, which begins with the other ranks of an engine if it is given."""
    if begin_with:
        barrier(begin_with)
    wall, cpu = time.perf_counter(), time.process_time()
    stepper.step()
    return time.perf_counter() - wall, time.process_time() - cpu


def _bucket_bytes(stepper: Stepper) -> list[int]:
    """Return the sizes of DDP's buckets, rebuilt after the first step; none for other engines."""
    wrapped = stepper.gradient.forward.wrapped
    if not isinstance(wrapped, DistributedDataParallel):
        return []
    data = wrapped._get_ddp_logging_data()
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    return [int(size) for size in str(sizes).split(",") if size.strip()]
