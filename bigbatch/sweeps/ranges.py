"""What a search may choose from: `optimizer.lr=0.01..1:log`, `optimizer.momentum=0.8..0.99`, `optimizer=lars,adam`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from bigbatch.errors import Problem
from bigbatch.settings import parse_value
from bigbatch.sweeps import grid

_NEAR_EDGE = 0.05  # of the range: the best lies there because the range ends there


class Range(BaseModel):
    """Numbers from low to high, or choices."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def ends(self) -> tuple[Any, ...]:
        """What has to be a right value for all others to be one."""
        return self.choices or (self.number(self.low or 0.0), self.number(self.high or 0.0))

    def number(self, value: float) -> float:
        return int(value) if self.whole else value

    def edge(self, value: Any) -> str | None:
        """`lower` or `upper` where a value lies within 5 % of an end."""
        if self.choices or self.low is None or self.high is None:
            return None
        from math import log

        scale = log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return "lower" if share <= _NEAR_EDGE else "upper" if share >= 1 - _NEAR_EDGE else None


class Search(BaseModel):
    """Trials chosen one after another by Optuna's TPE, judged on training samples that are held out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ranges: tuple[Range, ...]
    trials: PositiveInt
    held_out: float = Field(0.1, gt=0, lt=1)
    storage: str | None = None  # without its password; None: a journal file in the sweep's folder


def parsed(texts: Iterable[str]) -> tuple[Range, ...]:
    ranges = [_range(text) for text in texts]
    fields = [found.field for found in ranges]
    if len(set(fields)) < len(fields):
        raise Problem("a field is searched twice: give one --search for each")
    return tuple(ranges)


def _range(text: str) -> Range:
    field, equals, values = text.partition("=")
    if not equals or not field:
        raise Problem(f"'{text}' is no range: write FIELD=LOW..HIGH, like optimizer.lr=0.01..1:log")
    if field == "seed":
        raise Problem("a seed is nothing to choose by: leave --search seed out")
    span, colon, scale = values.partition(":")
    low_text, dots, high_text = span.partition("..")
    if not dots or "..." in span:
        (choices,) = grid.parsed([text]).values()
        return Range(field=field, choices=choices)
    low, high = parse_value(low_text), parse_value(high_text)
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in (low, high)) or not low < high:
        raise Problem(f"--search {text} is no range from a number to a larger one: write it like optimizer.lr=0.01..1")
    if colon and scale != "log":
        raise Problem(f"--search {text} ends in '{scale}': write ':log', or nothing")
    if colon and low <= 0:
        raise Problem(f"--search {text} has no logarithm at {low}: begin above 0")
    whole = isinstance(low, int) and isinstance(high, int)
    return Range(field=field, low=low, high=high, log=bool(colon), whole=whole)
