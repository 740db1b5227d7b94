"""What the selectors that discard share: how many to discard, and the backward pass over the rest."""

from __future__ import annotations

from fractions import Fraction
from math import floor

from bigbatch.errors import Problem


def discard_count(discard: float, count: int) -> int:
    """Return ⌊discard·count⌋ in decimal: 0.29 of 100 are 29, where binary fractions have 28.99…"""
    if not 0 <= discard < 1:
        raise Problem(f"discard is {discard!r}: give a fraction of at least 0 and below 1, like 0.3 for 30 %")
    return floor(Fraction(str(float(discard))) * count)
