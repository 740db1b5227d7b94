"""The slowest of N ranks: everyone waits for it.

Each rank takes 1 + ε times the mean in a step, ε anew in each step, of mean 0 and standard deviation `fraction`. For
an exponential ε the expected largest of N is fraction·(H_N − 1); quantiles are those of the largest of N, F(x)^N = q.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from bigbatch.scaling.machine import Jitter

_EULER = 0.5772156649015329
_QUADRATURE = 200
_MIXED_SHARES = tuple((place + 0.5) / 8 for place in (0, 4, 2, 6, 1, 5, 3, 7))  # van der Corput's order


def expected_slowdown(jitter: Jitter, ranks: int) -> float:
    """The expected factor of the slowest of `ranks`; 1 for one rank."""
    if ranks == 1 or jitter.fraction == 0:
        return 1.0
    if jitter.kind == "exponential":
        return 1 + jitter.fraction * (harmonic_number(ranks) - 1)
    # the mean of the largest is the mean of its quantiles
    middles = ((index + 0.5) / _QUADRATURE for index in range(_QUADRATURE))
    return sum(slowdown_quantile(jitter, ranks, middle) for middle in middles) / _QUADRATURE


def representative_slowdowns(jitter: Jitter, ranks: int) -> tuple[float, ...]:
    """Factors of the slowest of `ranks` in some steps, as unlike and in as mixed an order as real ones are.

    Their mean is `slowest`.
    """
    expected = expected_slowdown(jitter, ranks)
    if expected == 1.0:
        return (1.0,)
    found = [slowdown_quantile(jitter, ranks, share) for share in _MIXED_SHARES]
    return tuple(factor + expected - sum(found) / len(found) for factor in found)


def slowdown_quantile(jitter: Jitter, ranks: int, share: float) -> float:
    """The factor that the slowest of `ranks` stays below in a `share` of the steps."""
    # q^(1/N) is too near to 1 for a float: keep what is missing to 1
    missing = -math.expm1(math.log(share) / ranks)
    if jitter.kind == "exponential":
        return 1 + jitter.fraction * (-math.log(missing) - 1)
    return max(0.0, 1 - jitter.fraction * NormalDist().inv_cdf(missing))


def harmonic_number(n: int) -> float:
    """1 + 1/2 + ... + 1/n."""
    if n < 100:
        return sum(1 / k for k in range(1, n + 1))
    return math.log(n) + _EULER + 1 / (2 * n) - 1 / (12 * n * n)
