"""From what a user asks for to the configurations that are measured, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.scaling import hosts as other_hosts
from bigbatch.scaling.options import MeasurementOptions
from bigbatch.scaling.workload import (
    EngineConfiguration,
    Workload,
    choose_engines,
    parse_real_workload,
    warn_if_ranks_share_cores,
)

CYCLES_MS = (1.0, 2.5, 5.0, 10.0, 20.0)
_FRACTIONS_OF_MODEL = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)


@dataclass(frozen=True)
class StepCounts:
    """How many rounds, and how many steps of each kind in each of them."""

    rounds: int = 5
    warmup_steps: int = 3
    timed_steps: int = 10
    recorded_steps: int = 3
    steps_without_communication: int = 0  # for a simulation to start from


@dataclass(frozen=True)
class Comparison:
    """A configuration beside the one process that does the same work (strong) or one rank's part of it (weak)."""

    scaling: str
    alone: EngineConfiguration
    ranks: EngineConfiguration


@dataclass(frozen=True)
class SettingSweep:
    """Configurations that differ in one setting of an engine."""

    engine: str
    setting: str
    ranks: int
    rank_batch: int
    values: tuple[float, ...]

    @property
    def configurations(self) -> list[EngineConfiguration]:
        settings = (((self.setting, value),) for value in self.values)
        return [EngineConfiguration(self.engine, self.ranks, self.rank_batch, one) for one in settings]


@dataclass(frozen=True)
class MeasurementRequest:
    """Everything that a measurement does."""

    model: Workload
    counts: StepCounts
    rank_batch: int
    gradient_bytes: int
    ranks: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    sweeps: tuple[SettingSweep, ...]
    hosts: tuple[str, ...] = ()

    @property
    def configurations(self) -> list[EngineConfiguration]:
        """Each once, and always the one process that the others are compared with."""
        compared = [one for comparison in self.comparisons for one in (comparison.alone, comparison.ranks)]
        swept = [one for sweep in self.sweeps for one in sweep.configurations]
        return list(dict.fromkeys([EngineConfiguration("local", 1, self.rank_batch), *compared, *swept]))


def build_request(options: MeasurementOptions) -> MeasurementRequest:
    if options.out is not None:
        atomic.check_writable(options.out)
    hosts = tuple(other_hosts.parse_hosts(options.hosts))
    engines = choose_engines(options.engines, ("local", "ddp") if hosts else ("local", "ddp", "horovod"))
    if hosts and "horovod" in engines:
        raise Problem("--hosts starts torchrun, which Horovod does not use: leave horovod out of --engines")
    ranks = _parse_ranks(options.ranks)
    model = parse_real_workload(options, engines)
    gradient_bytes = model.gradient_bytes()
    swept = build_sweeps(engines, max(ranks), options.rank_batch, gradient_bytes) if options.sweep else []
    counts = StepCounts(rounds=options.rounds, timed_steps=options.steps)
    compared = build_comparisons(engines, ranks, options.rank_batch)
    request = MeasurementRequest(
        model, counts, options.rank_batch, gradient_bytes, tuple(ranks), tuple(compared), tuple(swept), hosts
    )
    for configuration in request.configurations:
        model.run(configuration)  # refuses an option that an engine does not have
        if hosts:
            other_hosts.check_ranks_divide(hosts, configuration.ranks)
    other_hosts.check_reachable(hosts)
    if not hosts:
        warn_if_ranks_share_cores(max(ranks))
    return request


def _parse_ranks(text: str) -> list[int]:
    try:
        ranks = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise Problem(f"--ranks {text} is not a list of numbers: write them with commas, like 1,2") from error
    if ranks[0] < 1:
        raise Problem(f"--ranks must be at least 1, got {text}: use numbers from 1 on")
    return ranks


def build_comparisons(engines: Sequence[str], ranks: Sequence[int], rank_batch: int) -> list[Comparison]:
    """Weak: `rank_batch` on every rank. Strong: rank_batch x the most ranks, divided."""
    global_batch = rank_batch * max(ranks)
    pairs = [(count, name) for count in ranks if count > 1 for name in engines if name != "local"]
    alone, alone_with_all = EngineConfiguration("local", 1, rank_batch), EngineConfiguration("local", 1, global_batch)
    weak = [Comparison("weak", alone, EngineConfiguration(name, count, rank_batch)) for count, name in pairs]
    strong = [
        Comparison("strong", alone_with_all, EngineConfiguration(name, count, global_batch // count))
        for count, name in pairs
        if global_batch % count == 0
    ]
    return weak + strong


def build_sweeps(engines: Sequence[str], ranks: int, rank_batch: int, gradient_bytes: int) -> list[SettingSweep]:
    """DDP's bucket cap by fractions of the model; Horovod's cycle, and its fusion buffer from none to all gradients."""
    model_mb = gradient_bytes / 2**20
    fractions_mb = [_round_mb(fraction * model_mb) for fraction in _FRACTIONS_OF_MODEL]
    values: dict[tuple[str, str], Sequence[float]] = {
        ("ddp", "bucket_mb"): fractions_mb[::-1],
        ("horovod", "cycle_ms"): CYCLES_MS,
        ("horovod", "fusion_mb"): (0.0, fractions_mb[3], fractions_mb[1], _round_mb(1.1 * model_mb)),
    }
    return [
        SettingSweep(engine, setting, ranks, rank_batch, tuple(listed))
        for (engine, setting), listed in values.items()
        if engine in engines and ranks > 1
    ]


def _round_mb(mb: float) -> float:
    return float(f"{mb:.3g}")
