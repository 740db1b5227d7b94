"""What every filter gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Kept:
    """What a filter decided: a score and a verdict for each training sample. The test set is never touched."""

    score: Tensor  # what it was decided by; larger means sooner dropped
    mask: Tensor  # bool, true where kept
    info: dict[str, Any] = field(default_factory=dict)  # goes into the manifest: plain JSON values
    arrays: dict[str, Any] = field(default_factory=dict)  # goes into the .npz: one row a sample (map, cluster ...)
