"""Run folders with numbers chosen by hand, without a training, and what a page says as data."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from bigbatch.artifacts import provenance
from bigbatch.run import Run


@cache
def _where() -> dict[str, Any]:
    return provenance.collect() | {"commit": "c0ffee", "dirty_diff": "", "command": ["bigbatch", "train", "hand"]}


def step_row(step: int, loss: float | None, **more: Any) -> dict[str, Any]:
    row = {"epoch": step / 4, "samples": 10 * step, "step": step, "train_loss": loss, "train_accuracy": 0.5}
    return row | {"lr": 0.1, "global_batch": 10, "kept": 10} | more


def test_row(step: int, accuracy: float) -> dict[str, Any]:
    row = {"epoch": step / 4, "samples": 10 * step, "step": step, "epoch_train_loss": 1.0, "test_loss": 2 - accuracy}
    return row | {"test_accuracy": accuracy, "seconds": 1.5}


def make(folder: Path, run: Run, accuracies: list[float], status: str = "done", **summary: Any) -> Path:
    """A run of four steps an epoch that tested to these accuracies."""
    folder.mkdir(parents=True)
    about = {"run": json.loads(run.to_json()), "hash": run.hash, **_where()}
    (folder / "run.json").write_text(json.dumps(about))
    rows = []
    for epoch, accuracy in enumerate(accuracies):
        rows += [step_row(4 * epoch + step, 1 / (4 * epoch + step)) for step in (1, 2, 3, 4)]
        rows.append(test_row(4 * epoch + 4, accuracy))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "status").write_text(status + "\n")
    if status in ("done", "diverged"):
        about_the_end = {"test_accuracy": accuracies[-1], "test_loss": 2 - accuracies[-1], "train_loss": 0.25}
        about_the_end |= {"diverged_at_step": None, "epochs": len(accuracies), "steps": 4 * len(accuracies)}
        (folder / "summary.json").write_text(json.dumps(about_the_end | {"seconds": 1.5} | summary))
    return folder


def downloads(page: Path) -> dict[str, list[dict[str, str]]]:
    """Every CSV that a page offers, by its name, as rows."""
    links = re.findall(r'<a download="([^"]+)" href="data:text/csv;base64,([^"]+)"', page.read_text())
    return {
        html.unescape(name): list(csv.DictReader(io.StringIO(base64.b64decode(data).decode()))) for name, data in links
    }


def text_of(page: Path) -> str:
    """What a reader sees, without charts and links."""
    body = page.read_text().partition("<body>")[2]
    body = re.sub(r"<svg.*?</svg>", "", body, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", body))
