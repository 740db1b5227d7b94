"""The plain numbers in a row of metrics, whatever a probe nested them in."""

from __future__ import annotations

import math
from typing import Any


def scalars(row: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """`{"rate": .1, "gradient": {"mean": 2, "layers": [...]}}` gives `rate` and `gradient/mean`.

    Lists, texts, truth values and what is not finite are left out.
    """
    found: dict[str, float] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= scalars(value, f"{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[name] = float(value)
    return found
