"""A measurement from the question to the answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from bigbatch.scaling.measured import rounds
from bigbatch.scaling.measured.asked import Asked
from bigbatch.scaling.measured.cases import Case
from bigbatch.scaling.measured.timings import Efficiency, Round, Timing, efficiency, timings


@dataclass(frozen=True)
class Measurement:
    """What `bigbatch scale measure` found."""

    asked: Asked
    rounds: tuple[Round, ...]
    cores: int

    @cached_property
    def timings(self) -> dict[Case, Timing]:
        return timings(self.rounds)

    @cached_property
    def efficiencies(self) -> list[Efficiency]:
        return [efficiency(one, self.timings, self.cores) for one in self.asked.comparisons]


def measure(asked: Asked, said: Callable[[str], None]) -> Measurement:
    found = rounds.measure(asked.subject, asked.cases, asked.plan, asked.hosts, said)
    return Measurement(asked, tuple(found), os.cpu_count() or 1)
