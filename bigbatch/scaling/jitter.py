"""The slowdown of a step by jitter: all ranks wait for the slowest one.

Each rank takes 1 + ε times the mean in a step, with ε drawn for each step, of mean 0 and standard deviation `fraction`.
For an exponential ε the expected largest of N is fraction·(H_N − 1); quantiles are those of the largest of N,
F(x)^N = q.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from bigbatch.scaling.machine import Jitter

_EULER = 0.5772156649015329
_QUADRATURE = 200
_MIXED_QUANTILES = tuple((place + 0.5) / 8 for place in (0, 4, 2, 6, 1, 5, 3, 7))  # van der Corput's order


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
    """Factors of the slowest of `ranks` in several steps, with the spread and mixed order of real ones.

    Their mean is `expected_slowdown`.
    """
    expected = expected_slowdown(jitter, ranks)
    if expected == 1.0:
        return (1.0,)
    factors = [slowdown_quantile(jitter, ranks, quantile) for quantile in _MIXED_QUANTILES]
    return tuple(factor + expected - sum(factors) / len(factors) for factor in factors)


def slowdown_quantile(jitter: Jitter, ranks: int, quantile: float) -> float:
    """The factor that the slowest of `ranks` does not exceed in this fraction of the steps."""
    # q^(1/N) is too close to 1 for a float: keep the difference to 1
    missing = -math.expm1(math.log(quantile) / ranks)
    if jitter.kind == "exponential":
        return 1 + jitter.fraction * (-math.log(missing) - 1)
    return max(0.0, 1 - jitter.fraction * NormalDist().inv_cdf(missing))


def harmonic_number(n: int) -> float:
    """1 + 1/2 + ... + 1/n."""
    if n < 100:
        return sum(1 / k for k in range(1, n + 1))
    return math.log(n) + _EULER + 1 / (2 * n) - 1 / (12 * n * n)
