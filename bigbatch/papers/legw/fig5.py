"""Fig. 5: LEGW against Adam at growing batches, on MNIST (accuracy) and on the Penn Treebank (perplexity)."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.legw.settings import ADAM, SEEDS, image_lstm, text_lstm
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

IMAGE_BATCHES, TEXT_BATCHES = (128, 1024, 8192), (20, 160, 640)
METHODS = ("LEGW", "Adam")
PAPER: dict[tuple[str, str, int], float | None] = {
    (data, name, batch): None
    for data, batches in (("MNIST", IMAGE_BATCHES), ("PTB", TEXT_BATCHES))
    for name in METHODS
    for batch in batches
}  # drawn, not printed


def runs(scale: Scale) -> Cases:
    """The text is left to `legw.ptb` at the laptop scale, where a run takes more than an hour."""
    cases: Cases = {}
    for data, name, batch in PAPER:
        if data == "MNIST" or scale != "laptop":
            build = image_lstm if data == "MNIST" else text_lstm
            cases[data, name, batch] = repeat(build(scale, batch, **(ADAM if name == "Adam" else {})), SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    series = {name: [("MNIST", name, batch) for batch in IMAGE_BATCHES] for name in METHODS}
    charts = {"images": chart_against(results, "LEGW and Adam on images", series)}
    claims = [
        Claim.better(
            results,
            "images: at the largest batch LEGW is more accurate than Adam",
            ("MNIST", "LEGW", 8192),
            ("MNIST", "Adam", 8192),
        ),
        Claim.check(
            "images: LEGW loses less than Adam from the smallest batch to the largest",
            lambda: _loss(results, "LEGW") < _loss(results, "Adam"),
        ),
    ]
    if results.scale != "laptop":
        series = {name: [("PTB", name, batch) for batch in TEXT_BATCHES] for name in METHODS}
        charts["text"] = chart_against(results, "LEGW and Adam on text", series)
        claims.append(
            Claim.better(
                results,
                "text: at the largest batch LEGW has the lower perplexity",
                ("PTB", "LEGW", 640),
                ("PTB", "Adam", 640),
            )
        )
    return Drawing(claims, [compare(results, ["data", "method", "batch"], PAPER)], charts)


def _loss(results: Results, name: str) -> float:
    return results.mean(("MNIST", name, 128)) - results.mean(("MNIST", name, 8192))
