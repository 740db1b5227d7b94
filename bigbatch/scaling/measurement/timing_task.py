"""The worker task of a measurement: warm-up steps, timed steps, recorded steps, on one thread per rank.

Where asked to, a rank also takes steps without communication, of a model of its own, before and after the timed steps:
a simulation starts from them, as the same step may take a fifth longer in the next process.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bigbatch.engines import Engine, ddp
from bigbatch.run import Run
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.ranks import WorkerTask
from bigbatch.scaling.recording import record_steps
from bigbatch.scaling.stepper import DDPWithoutCommunication, Stepper, WithoutCommunication, barrier


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


class TimingTask(WorkerTask):
    kind: Literal["timing"] = "timing"
    warmup_steps: int = 3
    timed_steps: int = 10
    recorded_steps: int = 3
    steps_without_communication: int = 0

    def perform(self, run: Run, engine: Engine) -> str:
        load_1min = os.getloadavg()[0]  # before these steps add to it
        stepper = Stepper(run, engine)
        quiet = Stepper(run, _without_communication(run, engine)) if self.steps_without_communication else None
        for _ in range(self.warmup_steps):
            stepper.step()
            if quiet:
                quiet.step()
        quiet_s = self._time_half(quiet, engine)
        barrier(engine)
        times = [_time_step(stepper) for _ in range(self.timed_steps)]
        quiet_s += self._time_half(quiet, engine)
        recorded = record_steps(stepper, self.recorded_steps)
        return RankTiming(
            rank=engine.rank,
            ranks=engine.world_size,
            host=socket.gethostname(),
            wall_s=[wall_s for wall_s, _ in times],
            cpu_s=[cpu_s for _, cpu_s in times],
            without_communication_s=quiet_s,
            steps=[replace(step, bars=tuple(step.messages)) for step in recorded],
            bucket_bytes=_bucket_bytes(stepper.gradient.forward.wrapped),
            load_1min=load_1min,
        ).model_dump_json()

    def _time_half(self, quiet: Stepper | None, engine: Engine) -> list[float]:
        """Time half of the steps without communication; all ranks begin each together."""
        times_s = []
        for _ in range(self.steps_without_communication // 2 if quiet else 0):
            assert quiet
            barrier(engine)
            times_s.append(_time_step(quiet)[0])
        return times_s


def _time_step(stepper: Stepper) -> tuple[float, float]:
    """Return the wall and CPU seconds of one step."""
    wall, cpu = time.perf_counter(), time.process_time()
    stepper.step()
    return time.perf_counter() - wall, time.process_time() - cpu


def _without_communication(run: Run, engine: Engine) -> Engine:
    """Return an engine that does the same on a rank, except to communicate; Horovod's cycles go on beside it."""
    if isinstance(run.engine, ddp.Config):
        return DDPWithoutCommunication(engine.world_size, engine.rank, run.engine)
    return WithoutCommunication(engine.world_size, engine.rank)


def _bucket_bytes(wrapped: nn.Module) -> list[int]:
    """Return the sizes of DDP's buckets, rebuilt after the first step; none for other engines."""
    if not isinstance(wrapped, DistributedDataParallel):
        return []
    data = wrapped._get_ddp_logging_data()
    sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
    return [int(size) for size in str(sizes).split(",") if size.strip()]
