"""The error of a refused request, and sets of samples as the page and the log write them.

A set of samples is a list of numbers, or for many samples a bitmask in base64: sample i is bit i % 8 of byte i // 8.
"""

from __future__ import annotations

import base64
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


def encode_samples(samples: SampleNumbers, count: int) -> dict[str, object]:
    """Return `{"samples": [...]}` or `{"bits": "..."}`, whichever is shorter."""
    if len(samples) * _CHARACTERS_PER_NUMBER <= count // 6:
        return {"samples": samples.tolist()}
    bits = np.zeros(count, np.uint8)
    bits[samples] = 1
    return {"bits": base64.b64encode(np.packbits(bits, bitorder="little").tobytes()).decode()}


def decode_samples(numbers: Sequence[int] | None, text: str | None, count: int) -> SampleNumbers:
    """Return ascending sample numbers from a list, or from the text of a bitmask."""
    if text is None:
        numbers = numbers or []
        if numbers and not (min(numbers) >= 0 and max(numbers) < count):  # before numpy, whose integers may overflow
            raise RequestError(
                f"samples are numbered 0 to {count - 1}, got {min(numbers)} to {max(numbers)}: reload the page"
            )
        samples = np.unique(np.asarray(numbers, np.int64))
    else:
        try:
            content = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise RequestError(f"the bitmask is not base64 ({error}): reload the page") from error
        bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")
        if len(content) != -(-count // 8) or bits[count:].any():
            raise RequestError(f"the bitmask has {len(content)} bytes for {count} samples: reload the page")
        samples = np.flatnonzero(bits)
    if not len(samples):
        raise RequestError("no sample is selected: select some first")
    return samples
