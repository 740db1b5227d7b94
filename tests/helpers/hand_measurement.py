"""Rounds, calibrations and a measurement, written by hand."""

from __future__ import annotations

from dataclasses import asdict

from hand import PROFILE

from bigbatch.scaling.measurement import calibration
from bigbatch.scaling.measurement.calibration import CalibrationRound, RankCalibration
from bigbatch.scaling.measurement.measurement import Measurement
from bigbatch.scaling.measurement.request import MeasurementOptions, build_request
from bigbatch.scaling.measurement.rounds import MeasuredRound, RankTiming
from bigbatch.scaling.phases import Bar, StepPhases
from bigbatch.scaling.workload import EngineConfiguration

ALONE, PAIR = EngineConfiguration("local", 1, 8), EngineConfiguration("ddp", 2, 8)


def message(start_us: float, end_us: float, size: int) -> Bar:
    return Bar("communication", "all-reduce", start_us, end_us, size)


def phases(exposed_us: float | None = 2000.0, messages: tuple[Bar, ...] = ()) -> StepPhases:
    return StepPhases(
        step_us=11_500.0, forward_us=3000.0, backward_us=6000.0, exposed_us=exposed_us, overlapped_us=1000.0,
        update_us=500.0, bars=messages,
    )  # fmt: skip


def rank_timing(
    rank: int, wall_s: list[float], cpu_s: list[float], steps: list[StepPhases] | None = None
) -> RankTiming:
    return RankTiming(
        rank=rank, ranks=2, host="here", wall_s=wall_s, cpu_s=cpu_s, steps=steps or [], bucket_bytes=[], load_1min=0.5
    )


def equal_steps(
    configuration: EngineConfiguration,
    wall_ms: float,
    *,
    cpu_ms: float | None = None,
    others: float | None = 0.0,
    number: int = 0,
) -> MeasuredRound:
    """A round in which every step took the same time."""
    wall, cpu = [wall_ms / 1e3] * 3, [(cpu_ms or wall_ms) / 1e3] * 3
    ranks = tuple(rank_timing(rank, wall, cpu) for rank in range(configuration.ranks))
    return MeasuredRound(configuration, ranks, others, 0.5, number)


def rank_calibration(rank: int, *, all_reduces_us: tuple[float, float, float], slower: float = 1.0) -> RankCalibration:
    """A rank of one round: 8 bytes, 4 kB and 16 MB, a step of 3.3 ms alone and `slower` times that beside the other."""
    sizes = (8, 4096, 16_000_000)
    return RankCalibration(
        rank=rank,
        all_reduces={size: [us, us] for size, us in zip(sizes, all_reduces_us, strict=True)},
        alone=asdict(PROFILE) if rank == 0 else None,
        alone_in_ddp=asdict(PROFILE.scale_times(1.1)) if rank == 0 else None,
        together_us=[slower * PROFILE.compute_us] * 3,
        busy_us={8: 900.0, 4096: 1000.0},
        cpu_us={8: 150.0, 4096: 250.0},
    )


ROUNDS = [
    CalibrationRound((
        rank_calibration(0, all_reduces_us=(200.0, 300.0, 15_000.0), slower=1.25),
        rank_calibration(1, all_reduces_us=(210.0, 250.0, 15_000.0), slower=1.2),
    )),
    CalibrationRound((
        rank_calibration(0, all_reduces_us=(220.0, 240.0, 14_000.0), slower=1.1),
        rank_calibration(1, all_reduces_us=(190.0, 260.0, 16_000.0), slower=1.6),
    )),
]  # fmt: skip


def measurement() -> Measurement:
    """One round of all configurations of DDP and of a sweep, on a calibrated machine."""
    options = MeasurementOptions(model="mlp", engines=["ddp"], sample="1,8,8", rounds=1, steps=3, sweep=True)
    request = build_request(options)
    rounds = [equal_steps(one, 10.0 if one.engine == "local" else 12.5) for one in request.configurations]
    return Measurement(request, tuple(rounds), 2, calibration=calibration.summarize_rounds(ROUNDS))
