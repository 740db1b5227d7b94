"""The error of a refused request, and sets of samples as the page and the log write them.

A set of samples is a list of numbers, or for many samples a bitmask in base64.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bigbatch.errors import Problem

SampleNumbers = NDArray[np.int64]

_CHARACTERS_PER_NUMBER = 8


class RequestError(Problem):
    """A request that is refused: a sentence for the person, and the HTTP status for the browser."""

    def __init__(self, sentence: str, status: int = 422) -> None:
        super().__init__(sentence)
        self.status = status


def decode_samples(numbers: Sequence[int] | None, bits: str | None, count: int) -> SampleNumbers:
    """Return ascending sample numbers from a list, or from a bitmask: sample i is bit i % 8 of byte i // 8."""
    samples = _check_numbers(numbers or [], count) if bits is None else np.flatnonzero(_unpack_bits(bits, count))
    if not len(samples):
        raise RequestError("no sample is selected: select some first")
    return samples


def encode_samples(samples: SampleNumbers, count: int) -> dict[str, object]:
    """Return `{"samples": [...]}` or `{"bits": "..."}`, whichever is shorter."""
    if len(samples) * _CHARACTERS_PER_NUMBER <= count // 6:
        return {"samples": samples.tolist()}
    bits = np.zeros(count, np.uint8)
    bits[samples] = 1
    return {"bits": base64.b64encode(np.packbits(bits, bitorder="little").tobytes()).decode()}


def _check_numbers(samples: Sequence[int], count: int) -> SampleNumbers:
    if samples and not (min(samples) >= 0 and max(samples) < count):  # before numpy, whose integers may overflow
        raise RequestError(
            f"samples are numbered 0 to {count - 1}, got {min(samples)} to {max(samples)}: reload the page"
        )
    return np.unique(np.asarray(samples, np.int64))


def _unpack_bits(text: str, count: int) -> NDArray[np.uint8]:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(f"the bitmask is not base64 ({error}): reload the page") from error
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
    if len(content) != -(-count // 8) or bits[count:].any():
        raise RequestError(f"the bitmask has {len(content)} bytes for {count} samples: reload the page")
    return bits[:count]
