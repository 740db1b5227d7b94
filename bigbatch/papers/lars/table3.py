"""Table 3: AlexNet and AlexNet-BN with LARS from 512 to 32K: no loss up to 8K."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare, not_worse
from bigbatch.papers.lars.settings import SEEDS, lars
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

# top-1 accuracy in %; the learning rates are in the recipes
PAPER = {
    ("AlexNet", 512): 58.7,
    ("AlexNet", 4096): 58.5,
    ("AlexNet", 8192): 58.2,
    ("AlexNet", 16384): 55.0,
    ("AlexNet", 32768): 46.9,
    ("AlexNet-BN", 512): 60.2,
    ("AlexNet-BN", 4096): 60.4,
    ("AlexNet-BN", 8192): 60.1,
    ("AlexNet-BN", 16384): 59.3,
    ("AlexNet-BN", 32768): 57.8,
}
NETWORKS = ("AlexNet", "AlexNet-BN")


def runs(scale: Scale) -> Cases:
    return {case: repeat(lars(scale, *case), SEEDS[scale]) for case in PAPER}


def draw(results: Results) -> Drawing:
    claims = []
    for network in NETWORKS:
        claims += [
            Claim.check(
                f"{network} loses nothing from 512 to 8K",
                lambda network=network: not_worse(results, (network, 8192), (network, 512)),  # type: ignore[misc]
            ),
            Claim.better(results, f"{network} loses at 32K", (network, 512), (network, 32768)),
        ]
    claims.append(
        Claim.check(
            "BatchNorm loses less at 32K than the network without it",
            lambda: _loss(results, "AlexNet-BN") < _loss(results, "AlexNet"),
        )
    )
    series = {network: [case for case in PAPER if case[0] == network] for network in NETWORKS}
    chart = chart_against(results, "LARS: accuracy against the batch", series)
    return Drawing(claims, [compare(results, ["network", "batch"], PAPER)], {"accuracy": chart})


def _loss(results: Results, network: str) -> float:
    return results.mean((network, 512)) - results.mean((network, 32768))
