"""Table 5: what a large batch loses with LARS is regained by training up to twice as long."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.lars.settings import SEEDS, lars
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

EPOCHS = (100, 125, 150, 175, 200)
NETWORKS = {
    ("AlexNet", 16384): (55.0, 55.9, 56.7, 57.3, 58.2),
    ("AlexNet-BN", 32768): (57.8, 59.2, 59.5, 59.5, 59.9),
    ("ResNet-50", 16384): (74.4, 74.1, 74.6, 74.8, 75.5),
}
# top-1 accuracy in % by network, batch and epochs
PAPER = {
    (*network, epochs): number
    for network, numbers in NETWORKS.items()
    for epochs, number in zip(EPOCHS, numbers, strict=True)
}


def runs(scale: Scale) -> Cases:
    cases = [case for case in PAPER if scale == "paper" or (case[2] in (100, 150, 200) and case[0] != "ResNet-50")]
    return {
        (name, batch, epochs): repeat(lars(scale, name, batch, epochs=epochs), SEEDS[scale])
        for name, batch, epochs in cases
    }


def draw(results: Results) -> Drawing:
    claims = [
        Claim.better(
            results, f"{network}: twice the epochs are more accurate", (network, batch, 200), (network, batch, 100)
        )
        for network, batch in NETWORKS
        if results.scale == "paper" or network != "ResNet-50"
    ]
    series = {f"{name}, {batch:,}": [(name, batch, epochs) for epochs in EPOCHS] for name, batch in NETWORKS}
    chart = chart_against(
        results, "Accuracy against the length of the training", series, x="paper's epochs", place=lambda case: case[2]
    )
    return Drawing(claims, [compare(results, ["network", "batch", "epochs"], PAPER)], {"accuracy": chart})
