"""Fig. 3: AlexNet-BN with LARS at 16K and 32K: a wide interval of learning rates gives nearly the best accuracy."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.lars.settings import SEEDS, lars
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

LRS = (5, 9, 13, 18, 22, 30)
# at 16K every learning rate in [13, 22] gives about 59.3 %; other points are drawn, not printed
PAPER = {(batch, lr): 59.3 if batch == 16384 and 13 <= lr <= 22 else None for batch in (16384, 32768) for lr in LRS}


def runs(scale: Scale) -> Cases:
    cases = [case for case in PAPER if scale != "smoke" or case[0] == 16384]
    return {(batch, lr): repeat(lars(scale, "AlexNet-BN", batch, lr=lr), SEEDS[scale]) for batch, lr in cases}


def draw(results: Results) -> Drawing:
    series = {f"{batch:,}": [(batch, lr) for lr in LRS] for batch in (16384, 32768)}
    chart = chart_against(
        results, "LARS: accuracy against the learning rate", series, x="lr", place=lambda case: float(case[1])
    )
    tolerance = 3 if results.scale == "paper" else 10
    inside = [results.mean((16384, lr)) for lr in (13, 18, 22) if (16384, lr) in results.records]
    claims = [
        Claim.check(
            f"16K: learning rates from 13 to 22 are within {tolerance} points of each other, and none diverges",
            lambda: results.mean((16384, 13)) > 0 and min(inside) > 0 and 100 * (max(inside) - min(inside)) < tolerance,
        )
    ]
    return Drawing(claims, [compare(results, ["batch", "lr"], PAPER)], {"accuracy": chart})
