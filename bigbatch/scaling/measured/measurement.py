"""A measurement from the question to the answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from bigbatch.scaling.measured import calibration, rounds
from bigbatch.scaling.measured.asked import Asked
from bigbatch.scaling.measured.calibration import Calibration
from bigbatch.scaling.measured.cases import Case
from bigbatch.scaling.measured.predicted import Predicted, predicted
from bigbatch.scaling.measured.timings import Efficiency, Round, Timing, efficiency, timings

_SILENT_STEPS = 12


@dataclass(frozen=True)
class Measurement:
    """What `bigbatch scale measure` found."""

    asked: Asked
    rounds: tuple[Round, ...]
    cores: int
    traced: dict[Case, Round] = field(default_factory=dict)
    calibration: Calibration | None = None
    stopped: bool = False  # by Ctrl-C, before all rounds that were asked for

    @cached_property
    def timings(self) -> dict[Case, Timing]:
        return timings(self.rounds, self.traced)

    @cached_property
    def efficiencies(self) -> list[Efficiency]:
        return [efficiency(one, self.timings, self.cores) for one in self.asked.comparisons]

    @property
    def refused(self) -> str:
        """Why step times tell more of the machine than of the engines, and judge no simulation, or ''."""
        return next((one.refused for one in self.efficiencies if one.refused), "")

    @cached_property
    def predicted(self) -> list[Predicted]:
        """The simulator's steps, where it was calibrated."""
        if self.calibration is None:
            return []
        return predicted(self.timings, self.asked.subject, self.calibration)


def measure(asked: Asked, said: Callable[[str], None], *, calibrate: bool, trace: bool = True) -> Measurement:
    """Calibration, where it is wanted and ranks are on this machine, takes its turn in every round.

    `trace`: one more start for each case of Horovod, for what its timeline tells. Ctrl-C ends the measurement with the
    rounds that are complete; before the first one is, it ends everything.
    """
    calibrated: list[calibration.CalibrationRound] = []
    complete: list[list[Round]] = []
    traced: dict[Case, Round] = {}
    with_horovod = any(case.engine == "horovod" for case in asked.cases)
    wanted = calibrate and not asked.hosts and calibration.RANKS in asked.ranks
    plan = replace(asked.plan, silent_steps=_SILENT_STEPS if wanted else 0)

    def each_round(number: int) -> None:
        if wanted:
            said(f"round {number + 1} of {asked.plan.rounds}: calibration")
            subject, batch = asked.subject, asked.rank_batch
            calibrated.append(calibration.once(subject, batch, asked.gradient_bytes, with_horovod=with_horovod))

    stopped = False
    try:
        for found in rounds.measure(asked.subject, asked.cases, plan, asked.hosts, said, each_round):
            complete.append(found)
        for case in asked.cases:
            if trace and case.engine == "horovod" and not case.settings:
                traced[case] = rounds.once(asked.subject, case, asked.plan.rounds, asked.plan, traced=True)
    except KeyboardInterrupt:
        if not complete:
            raise
        stopped = True
        said(f"interrupted: what follows is of the {len(complete)} complete of {asked.plan.rounds} rounds")
    return Measurement(
        asked=replace(asked, plan=replace(asked.plan, rounds=len(complete))),
        rounds=tuple(one for found in complete for one in found),
        cores=os.cpu_count() or 1,
        traced=traced,
        calibration=calibration.calibration(calibrated[: len(complete)]) if calibrated else None,
        stopped=stopped,
    )
