"""Table 1: ResNet-50 on ImageNet with LARS and LEGW from 1K to 32K, nothing retuned."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.legw.settings import SEEDS, resnet
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

# top-5 accuracy in %. Initial lr 2^2.5 at 1024 and √k of it above, warm-up 0.3125 epochs and k times of it.
PAPER = {1024: 93.36, 2048: 93.25, 4096: 93.34, 8192: 93.55, 16384: 93.43, 32768: 93.18}


def batches(scale: Scale) -> list[int]:
    return list(PAPER) if scale == "paper" else [1024, 8192, 32768]


def runs(scale: Scale) -> Cases:
    return {batch: repeat(resnet(scale, batch), SEEDS[scale]) for batch in batches(scale)}


def draw(results: Results) -> Drawing:
    points = batches(results.scale)
    name = "test_accuracy_top5" if results.scale == "paper" else None
    tolerance = {"smoke": 0.08, "laptop": 0.02, "paper": 0.01}[results.scale]
    claims = [
        Claim.check(
            f"from the smallest to the largest batch the accuracy stays within {100 * tolerance:g} points",
            lambda: (
                not any(map(results.diverged, points))
                and max(results.mean(batch, name) for batch in points)
                <= min(results.mean(batch, name) for batch in points) + tolerance
            ),
        )
    ]
    chart = chart_against(results, "LARS + LEGW against the batch", {"LARS + LEGW": points})
    return Drawing(claims, [compare(results, ["batch"], PAPER)], {"accuracy": chart})
