"""Table 1: AlexNet and AlexNet-BN with momentum at 4K and 8K: BatchNorm bears larger learning rates, but both lose."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.lars.settings import SEEDS, momentum
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

# top-1 accuracy in % by network, batch and base lr; 0.1 is chance: the training diverged
PAPER = {
    ("AlexNet", 512, 0.02): 58.8,
    ("AlexNet", 4096, 0.04): 53.0,
    ("AlexNet", 4096, 0.05): 53.1,
    ("AlexNet", 4096, 0.06): 51.6,
    ("AlexNet", 4096, 0.07): 0.1,
    ("AlexNet", 8192, 0.02): 29.8,
    ("AlexNet", 8192, 0.03): 44.8,
    ("AlexNet", 8192, 0.04): 43.1,
    ("AlexNet", 8192, 0.05): 0.1,
    ("AlexNet-BN", 512, 0.02): 60.2,
    ("AlexNet-BN", 4096, 0.16): 58.1,
    ("AlexNet-BN", 4096, 0.18): 58.9,
    ("AlexNet-BN", 4096, 0.21): 58.5,
    ("AlexNet-BN", 4096, 0.30): 57.1,
    ("AlexNet-BN", 8192, 0.23): 57.6,
    ("AlexNet-BN", 8192, 0.30): 58.0,
    ("AlexNet-BN", 8192, 0.32): 57.7,
    ("AlexNet-BN", 8192, 0.41): 56.5,
}
WARMUP_EPOCHS = {"AlexNet": 2.5, "AlexNet-BN": 0.0}
TOO_HIGH = ("AlexNet", 8192, 0.41)  # not in the table: the learning rate that only BatchNorm bears
SMOKE = [case for case in PAPER if case[1:] in ((512, 0.02), (8192, 0.02), (8192, 0.03), (8192, 0.23), (8192, 0.41))]


def runs(scale: Scale) -> Cases:
    cases = [*(SMOKE if scale == "smoke" else PAPER), TOO_HIGH]
    return {
        (network, batch, lr): repeat(momentum(scale, network, batch, lr, WARMUP_EPOCHS[network]), SEEDS[scale])
        for network, batch, lr in cases
    }


def best(results: Results, network: str, batch: int) -> float:
    """Return the best accuracy over the learning rates that were tried."""
    tried = [case for case in results.records if case[:2] == (network, batch)]
    return max(map(results.mean, tried)) if tried else results.mean((network, batch))


def draw(results: Results) -> Drawing:
    claims = [
        Claim.check(
            "without BatchNorm the highest learning rate diverges or stays near chance at 8K",
            lambda: results.mean(TOO_HIGH) < best(results, "AlexNet", 8192) / 2,
        ),
        Claim.check(
            "with BatchNorm the same learning rate trains",
            lambda: results.mean(("AlexNet-BN", 8192, 0.41)) > 2 * results.mean(TOO_HIGH),
        ),
        *(
            Claim.check(
                f"{network} at 8K is less accurate than at 512 at every learning rate",
                lambda network=network: best(results, network, 8192) < best(results, network, 512),  # type: ignore[misc]
            )
            for network in WARMUP_EPOCHS
        ),
        Claim.check(
            "AlexNet-BN loses less than AlexNet from 512 to 8K",
            lambda: (
                best(results, "AlexNet-BN", 512) - best(results, "AlexNet-BN", 8192)
                < best(results, "AlexNet", 512) - best(results, "AlexNet", 8192)
            ),
        ),
    ]
    series = {
        f"{network}, {batch:,}": [case for case in (*PAPER, TOO_HIGH) if case[:2] == (network, batch)]
        for network in WARMUP_EPOCHS
        for batch in (4096, 8192)
    }
    chart = chart_against(
        results,
        "Momentum: accuracy against the learning rate",
        series,
        x="paper's lr",
        place=lambda case: float(case[2]),
    )
    table = compare(results, ["network", "batch", "lr"], {**PAPER, TOO_HIGH: None})
    return Drawing(claims, [table], {"accuracy": chart})
