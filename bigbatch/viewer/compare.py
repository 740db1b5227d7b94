"""How far two filters agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bigbatch.filters import jaccard


def overlap(this: NDArray[np.bool_], other: NDArray[np.bool_]) -> dict[str, Any]:
    """Counts of samples, and dropped (kept) by both over dropped (kept) by either."""
    a, b = torch.from_numpy(this), torch.from_numpy(other)
    return {
        "kept_by_both": int((a & b).sum()),
        "kept_by_this": int((a & ~b).sum()),
        "kept_by_other": int((~a & b).sum()),
        "dropped_by_both": int((~a & ~b).sum()),
        "jaccard_kept": jaccard(a, b),
        "jaccard_dropped": jaccard(~a, ~b),
    }
