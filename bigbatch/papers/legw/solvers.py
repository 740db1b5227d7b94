"""Section 5.2: seven solvers at their usual settings; of the adaptive ones Adam is the rival, not Adadelta."""

from __future__ import annotations

from typing import Any

from bigbatch.papers.drawing import Claim, Drawing, better, chart_against, compare
from bigbatch.papers.legw.settings import SEEDS, image_lstm, text_lstm
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

BATCHES = (128, 8192)
# learning rates: that of the baseline for the first three, torch's and the papers' own defaults for the others
SOLVERS: dict[str, dict[str, Any]] = {
    "SGD": {"name": "sgd"},
    "Momentum": {"name": "momentum"},
    "Nesterov": {"name": "nesterov"},
    "Adagrad": {"name": "adagrad", "lr": 0.01},
    "RMSprop": {"name": "rmsprop", "lr": 0.001},
    "Adam": {"name": "adam", "lr": 0.001},
    "Adadelta": {"name": "adadelta", "lr": 1.0},
}
PAPER: dict[tuple[str, int], float | None] = {(name, batch): None for name in SOLVERS for batch in BATCHES}


def runs(scale: Scale) -> Cases:
    cases: Cases = {}
    for name, batch in PAPER:
        run = image_lstm(scale, batch)
        solver = {"lr": run.optimizer.lr} | SOLVERS[name]  # type: ignore[attr-defined]
        cases[name, batch] = repeat(image_lstm(scale, batch, optimizer=solver, schedule="constant"), SEEDS[scale])
    if scale != "laptop":
        for name in ("Adam", "Adadelta"):
            text = text_lstm(scale, 20, optimizer=SOLVERS[name], schedule="constant")
            cases[f"{name} on text", 20] = repeat(text, SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    series = {name: [(name, batch) for batch in BATCHES] for name in SOLVERS}
    claims = [
        Claim.better(
            results,
            "images: Adam is more accurate than Adadelta at the baseline's batch",
            ("Adam", 128),
            ("Adadelta", 128),
        ),
        Claim.better(
            results, "text: Adam has a lower perplexity than Adadelta", ("Adam on text", 20), ("Adadelta on text", 20)
        ),
        Claim.check(
            "every solver is worse at the largest batch than at the baseline's",
            lambda: all(better(results, (name, 128), (name, 8192)) for name in SOLVERS),
        ),
    ]
    if results.scale == "laptop":
        del claims[1]  # the text is left out
    chart = chart_against(results, "Seven solvers, nothing scaled", series)
    return Drawing(claims, [compare(results, ["solver", "batch"], PAPER)], {"accuracy": chart})
