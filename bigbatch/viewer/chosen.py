"""Sets of samples on their way between page, log and memory: numbers where they are few, a bitmask where many."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bigbatch.viewer.refused import Refused

Samples = NDArray[np.int64]

_CHARACTERS_PER_NUMBER = 8


def from_fields(fields: dict[str, Any], count: int) -> Samples:
    """Ascending numbers out of `samples`, or out of `bits`: sample i is bit i % 8 of byte i // 8."""
    if fields.get("bits") is not None:
        chosen = np.flatnonzero(_unpacked(fields["bits"], count))
    else:
        chosen = _checked(fields.get("samples") or [], count)
    if not len(chosen):
        raise Refused("no sample is chosen: select some first")
    return chosen


def to_fields(chosen: Samples, count: int) -> dict[str, Any]:
    """Whichever of both is shorter."""
    if len(chosen) * _CHARACTERS_PER_NUMBER <= count // 6:
        return {"samples": chosen.tolist()}
    bits = np.zeros(count, np.uint8)
    bits[chosen] = 1
    return {"bits": base64.b64encode(np.packbits(bits, bitorder="little").tobytes()).decode()}


def _checked(samples: Sequence[int], count: int) -> Samples:
    if samples and not (min(samples) >= 0 and max(samples) < count):  # before numpy, which has no larger integers
        raise Refused(f"samples are numbered 0 to {count - 1}, got {min(samples)} to {max(samples)}: reload the page")
    return np.unique(np.asarray(samples, np.int64))


def _unpacked(text: str, count: int) -> NDArray[np.uint8]:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"the bitmask is not base64 ({error}): reload the page") from error
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    if len(content) != -(-count // 8) or bits[count:].any():
        raise Refused(f"the bitmask has {len(content)} bytes but there are {count} samples: reload the page")
    return bits[:count]
