"""How many are discarded."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from bigbatch.errors import Problem


def discard_count(discard: float, count: int) -> int:
    """⌊discard·count⌋ in decimal: 0.29 of 100 are 29, where binary fractions have 28.99…"""
    if not 0 <= discard < 1:
        raise Problem(f"discard is {discard!r}: give a share of at least 0 and below 1, like 0.3 for 30 %")
    return floor(Fraction(str(float(discard))) * count)
