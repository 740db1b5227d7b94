"""Section 5.1.1: the LSTM on MNIST from 128 to 8192, and what else could be done at 8192."""

from __future__ import annotations

from typing import Any

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare, not_worse
from bigbatch.papers.legw.settings import ADAM, POLY, image_lstm, scheme
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

BASELINE, LARGEST = 128, 8192
LARS = {"name": "lars", "lr": 0.1, "trust_coefficient": 0.02}
RIVALS = ("same lr", "linear scaling", "linear scaling, poly, 5-epoch warm-up", "Adam")
LAYERWISE = {"LARS + LEGW": 2.0, "LARS + LEGW, linear decay": 1.0}  # the power of the decay
# test accuracy in %; the other batches are drawn, not printed
PAPER: dict[tuple[str, int], float | None] = {
    ("LEGW", 128): 98.8,
    **{("LEGW", batch): None for batch in (256, 512, 1024, 2048, 4096)},
    ("LEGW", 8192): 98.8,
    **{(name, 8192): None for name in (*RIVALS, "LEGW, poly", *LAYERWISE)},
    ("LARS + LEGW", 128): None,
    ("LARS + LEGW", 1024): None,
    **{(name, batch): None for name in ("LEGW", "LARS + LEGW") for batch in (16384, 32768)},
}


def runs(scale: Scale) -> Cases:
    """Three seeds where the claim is decided; the batches beyond the paper's once."""
    cases: Cases = {}
    for name, batch in PAPER:
        if scale == "smoke" and (batch > LARGEST or batch in (256, 512, 2048, 4096)):
            continue
        run = image_lstm(scale, batch, full=True, **_fields(scale, name, batch))
        decided = batch in (BASELINE, 1024, LARGEST)
        cases[name, batch] = repeat(run, 1 if scale == "smoke" or not decided else 3)
    return cases


def _fields(scale: Scale, name: str, batch: int) -> dict[str, Any]:
    run = image_lstm(scale, batch, full=True)
    legw = scheme(run, "LEGW")
    if batch > LARGEST:  # the rule's warm-up would be longer than the training
        legw = legw | {"warmup_epochs": legw["warmup_epochs"] * LARGEST / batch}
    if name in LAYERWISE:
        lars = LARS | ({"lr": run.optimizer.lr, "trust_coefficient": 0.1} if scale == "smoke" else {})  # type: ignore[attr-defined]
        return {"optimizer": lars, "schedule": legw | {"decay": POLY | {"power": LAYERWISE[name]}}}
    if name == "Adam":
        return ADAM
    return {"schedule": {"LEGW": legw, "LEGW, poly": legw | {"decay": POLY}}.get(name) or scheme(run, name)}


def draw(results: Results) -> Drawing:
    lines: dict[str, list[tuple[str, int]]] = {}
    for name, batch in sorted(PAPER, key=lambda case: case[1]):
        lines.setdefault(name, []).append((name, batch))
    chart = chart_against(results, "LSTM on images: accuracy against the batch", lines)
    chart.horizontal_line(98.8, "paper, 128 to 8192")
    claims = [
        Claim.check(
            "LEGW loses no accuracy from 128 to 8192", lambda: not_worse(results, ("LEGW", 8192), ("LEGW", 128))
        ),
        *(
            Claim.better(results, f"at 8192 LEGW is more accurate than: {name}", ("LEGW", 8192), (name, 8192))
            for name in RIVALS
        ),
    ]
    return Drawing(claims, [compare(results, ["method", "batch"], PAPER)], {"accuracy": chart})
