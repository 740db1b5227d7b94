"""Fig. 1: LEGW keeps the accuracy constant while the batch grows; linear scaling with a 5-epoch warm-up does not."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.legw import table1
from bigbatch.papers.legw.settings import SEEDS, change, resnet, scheme
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

LEGW, GOYAL = "LEGW", "linear scaling, poly, 5-epoch warm-up"
# top-5 accuracy in %; the numbers of Goyal et al. are drawn but not printed
PAPER = {("LEGW", batch): number for batch, number in table1.PAPER.items()} | {
    (GOYAL, batch): None for batch in table1.PAPER
}
MOMENTUM = {"name": "momentum", "lr": 0.4, "weight_decay": 1e-4}  # Goyal et al. 2017: 0.1 for each 256 samples


def runs(scale: Scale) -> Cases:
    cases: Cases = {(LEGW, batch): tasks for batch, tasks in table1.runs(scale).items()}
    for batch in table1.batches(scale):
        run = resnet(scale, batch)
        optimizer = MOMENTUM if scale == "paper" else MOMENTUM | {"lr": 0.1}
        rival = change(run, name="goyal-resnet", optimizer=optimizer, schedule=scheme(run, GOYAL))
        cases[GOYAL, batch] = repeat(rival, SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    batches = table1.batches(results.scale)
    series = {name: [(name, batch) for batch in batches] for name in (LEGW, GOYAL)}
    chart = chart_against(results, "LEGW (with LARS) and Goyal et al. against the batch", series)
    largest, smallest = max(batches), min(batches)
    claims = [
        Claim.better(
            results,
            "at the largest batch LEGW is more accurate than linear scaling with a 5-epoch warm-up",
            (LEGW, largest),
            (GOYAL, largest),
        ),
        Claim.check(
            "from the smallest to the largest batch LEGW loses less than linear scaling does",
            lambda: (
                results.mean((LEGW, smallest)) - results.mean((LEGW, largest))
                < results.mean((GOYAL, smallest)) - results.mean((GOYAL, largest))
            ),
        ),
    ]
    return Drawing(claims, [compare(results, ["method", "batch"], PAPER)], {"accuracy": chart})
