"""The simulator's step beside the measured one, for every case that the calibration speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigbatch.scaling.curve import ENGINES, Setting, configured
from bigbatch.scaling.measured.calibration import RANKS, Calibration
from bigbatch.scaling.measured.cases import MIB, Case, Subject
from bigbatch.scaling.measured.timings import Timing

WITHIN = 0.25


@dataclass(frozen=True)
class Predicted:
    """`error` is simulated over measured, the median of rounds, minus 1."""

    case: Case
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        return self.simulated_s / self.measured_s - 1

    @property
    def holds(self) -> bool:
        return abs(self.error) <= WITHIN


def predicted(found: Mapping[Case, Timing], subject: Subject, calibration: Calibration) -> list[Predicted]:
    profile = calibration.profile
    return [
        Predicted(case, timing.median_s, 1e-6 * setting(case, subject, calibration).step_us(RANKS))
        for case, timing in found.items()
        if case.engine in ENGINES and case.ranks == RANKS and case.rank_batch == profile.rank_batch
    ]


def setting(case: Case, subject: Subject, calibration: Calibration) -> Setting:
    options = dict(subject.run(case).engine)
    config = configured(case.engine, simulated_options(case.engine, options, calibration.profile.gradient_bytes))
    return Setting(calibration.profile, case.engine, config, calibration.machine)


def simulated_options(engine: str, options: Mapping[str, Any], gradient_bytes: int) -> dict[str, Any]:
    """An engine's options as the simulator calls them."""
    if engine == "horovod":
        return {
            "cycle_ms": max(options["cycle_ms"], 1e-3),
            "fusion_mib": options["fusion_mb"],
            "cache_capacity": options["cache_capacity"],
        }
    # engines/ddp.py's choice where none is set; a cap of one's own holds for torch's first bucket too
    bucket_mib = options["bucket_mb"] or min(25.0, max(gradient_bytes / MIB / 4, 0.05))
    return {"bucket_mib": bucket_mib, "first_bucket_mib": bucket_mib}
