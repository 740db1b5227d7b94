"""Table 6: GoogLeNet with LARS from 256 to 16K needs more epochs and longer warm-ups as the batch grows."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.lars.settings import SEEDS, lars, momentum
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

SGD = "256 (no LARS)"
# top-1 accuracy in %; lr, epochs and warm-up of each batch are in the recipe
PAPER = {SGD: 69.2, 256: 70.3, 1024: 69.7, 2048: 71.1, 4096: 69.9, 8192: 69.0, 16384: 67.2}
SAME_LENGTH = "16384, 100 epochs"  # not in the table: what the largest batch reaches in the baseline's epochs


def runs(scale: Scale) -> Cases:
    batches = [batch for batch in PAPER if isinstance(batch, int)]
    if scale != "paper":
        batches = [256, 2048, 16384]
    cases: Cases = {batch: repeat(lars(scale, "GoogLeNet", batch), SEEDS[scale]) for batch in batches}
    cases[SGD] = repeat(momentum(scale, "GoogLeNet", 256, 0.02, 0.0), SEEDS[scale])
    short = lars(scale, "GoogLeNet", 16384, epochs=100)
    warmup = short.schedule.warmup.epochs * 100 / 350  # type: ignore[attr-defined]
    cases[SAME_LENGTH] = repeat(short.with_settings([f"schedule.warmup.epochs={warmup}"]), SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    tolerance = 3 if results.scale == "paper" else 5
    claims = [
        Claim.check(
            f"with more epochs and longer warm-ups 16K is within {tolerance} points of 256",
            lambda: results.mean(16384) > results.mean(256) - tolerance / 100,
        ),
        Claim.better(results, "in the baseline's epochs 16K is less accurate than in its own", 16384, SAME_LENGTH),
    ]
    chart = chart_against(results, "GoogLeNet with LARS", {"LARS": [b for b in PAPER if isinstance(b, int)]})
    return Drawing(claims, [compare(results, ["batch"], {**PAPER, SAME_LENGTH: None})], {"accuracy": chart})
