"""metrics.jsonl: one row per step and one per evaluation, as strict JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bigbatch.errors import Problem

_FLUSH_SECONDS = 1.0

MetricsRow = dict[str, Any]  # numbers by name; what a probe measured is a dict of its own


@dataclass(frozen=True)
class StepMetrics:
    """The row of one training step."""

    epoch: float  # at the end of the step
    samples: int
    step: int
    train_loss: float
    train_accuracy: float
    lr: float
    global_batch: int
    kept: int  # samples that were learned from


@dataclass(frozen=True)
class EvaluationMetrics:
    """The row of one evaluation."""

    epoch: float
    samples: int
    step: int
    epoch_train_loss: float  # mean over the epoch so far
    measures: dict[str, float]  # test_loss, test_accuracy ...
    seconds: float

    def to_row(self) -> MetricsRow:
        """Return the row of metrics.jsonl, with the measures beside the other fields."""
        before = {name: getattr(self, name) for name in ("epoch", "samples", "step", "epoch_train_loss")}
        return {**before, **self.measures, "seconds": self.seconds}


def read_rows(path: Path) -> Iterator[MetricsRow]:
    """Yield all rows. A kill may truncate the last line, which is left out; any other invalid line is a Problem."""
    return parse_rows(read_lines(path), path)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file; none where it does not exist."""
    try:
        return path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise Problem(f"{path} cannot be read ({error.strerror}): make it readable") from error


def parse_rows(
    lines: Sequence[bytes],
    path: Path,
    parse: Callable[[bytes], Any] | None = None,
    *,
    skip_invalid: bool = False,
) -> Iterator[Any]:
    """Yield the rows of lines; of a damaged file also those between invalid lines."""
    for number, line in enumerate(lines, start=1):
        try:
            yield (parse or parse_row)(line)
        except (ValueError, RecursionError) as error:
            if number < len(lines) and not skip_invalid:
                raise Problem(f"line {number} of {path} is not a row ({error}): fix or remove it") from error


def parse_row(line: bytes) -> MetricsRow:
    """Parse one line of metrics.jsonl. The key `rate` of older files becomes `lr`."""
    row = json.loads(line)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("it is not an object with a step")
    return {"lr" if key == "rate" else key: value for key, value in row.items()} if "rate" in row else row


def dump_json(value: MetricsRow, indent: int | None = None) -> str:
    """Return strict JSON: numbers that are not finite become null."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError:
        return json.dumps(_replace_nonfinite(value), indent=indent)


def _replace_nonfinite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class MetricsContent:
    """What metrics.jsonl held at a checkpoint: a resume finds the same, or says that rows were lost."""

    rows: int
    size_bytes: int
    sha256: str

    def is_begin_of(self, content: bytes) -> bool:
        return hashlib.sha256(content[: self.size_bytes]).hexdigest() == self.sha256


class MetricsWriter:
    """Appends rows; flushes them at least every second."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        self._rows, self._bytes, self._digest = content.count(b"\n"), len(content), hashlib.sha256(content)
        self._file: IO[bytes] = path.open("ab", buffering=1 << 16)
        self._flushed = time.monotonic()

    def add(self, row: MetricsRow) -> None:
        line = dump_json(row).encode() + b"\n"
        self._file.write(line)
        self._digest.update(line)
        self._rows, self._bytes = self._rows + 1, self._bytes + len(line)
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._flushed = time.monotonic()

    def sync(self) -> MetricsContent:
        """Write all rows to the disk itself, and return what the file holds."""
        self.flush()
        os.fsync(self._file.fileno())
        return MetricsContent(self._rows, self._bytes, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def scalars(row: MetricsRow, prefix: str = "") -> dict[str, float]:
    """Flatten the finite numbers of a row: `{"gradient": {"mean": 2, "layers": [...]}}` gives `gradient/mean`.

    Lists, strings, booleans and numbers that are not finite are left out.
    """
    found: dict[str, float] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found |= scalars(value, f"{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found[name] = float(value)
    return found
