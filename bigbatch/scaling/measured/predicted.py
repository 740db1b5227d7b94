"""The simulator's step beside the measured one, for every case that the calibration speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bigbatch.engines.ddp import own_bucket_mb
from bigbatch.scaling.curve import ENGINES, Setting, configured
from bigbatch.scaling.measured.calibration import RANKS, Calibration
from bigbatch.scaling.measured.cases import Case, Subject
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
    if case.engine == "horovod":
        return Setting(calibration.profile, "horovod", config, calibration.machine)
    copied = calibration.machine.model_copy(update={"copy_gb_s": None})  # the profile has copies into buckets in it
    return Setting(calibration.profile_in_ddp, case.engine, config, copied)


def simulated_options(engine: str, options: Mapping[str, Any], gradient_bytes: int) -> dict[str, Any]:
    """An engine's options as the simulator calls them."""
    if engine == "horovod":
        return {
            "cycle_ms": max(options["cycle_ms"], 1e-3),
            "fusion_mb": options["fusion_mb"],
            "cache_capacity": options["cache_capacity"],
        }
    bucket_mb = options["bucket_mb"] or own_bucket_mb(gradient_bytes)
    # a cap of one's own holds for torch's first bucket too
    return {"bucket_mb": bucket_mb, "first_bucket_mb": bucket_mb}
