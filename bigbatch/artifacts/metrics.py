"""metrics.jsonl: one row per step and one per evaluation, as strict JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bigbatch.errors import Problem

_FLUSH_SECONDS = 1.0


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

    def to_row(self) -> dict[str, Any]:
        """As in metrics.jsonl, with the measures beside the other fields."""
        before = {name: getattr(self, name) for name in ("epoch", "samples", "step", "epoch_train_loss")}
        return {**before, **self.measures, "seconds": self.seconds}


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """All rows. A kill may have cut the last line short; any other that cannot be read is somebody else's doing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            yield parse_row(line)
        except ValueError as error:
            if number < len(lines):
                raise Problem(f"line {number} of {path} is not JSON ({error}): mend or remove it") from error


def parse_row(line: str | bytes) -> dict[str, Any]:
    """Parse one line of metrics.jsonl. The key `rate` of older files becomes `lr`."""
    row: dict[str, Any] = json.loads(line)
    if "rate" in row:
        row = {"lr" if key == "rate" else key: value for key, value in row.items()}
    return row


def dump_json(value: dict[str, Any], **style: Any) -> str:
    """JSON as the standard has it: what is not finite becomes null."""
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError:
        return json.dumps(_finite(value), **style)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricsWriter:
    """Appends rows; on disk at least every second and whenever asked."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1 << 16)
        self._flushed = time.monotonic()

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(dump_json(row) + "\n")
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


def scalars(row: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """`{"lr": .1, "gradient": {"mean": 2, "layers": [...]}}` gives `lr` and `gradient/mean`.

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
