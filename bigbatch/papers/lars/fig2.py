"""Fig. 2: AlexNet-BN with LARS at 8K follows the baseline at 512 to the same accuracy."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_over_epochs, compare
from bigbatch.papers.lars import table3
from bigbatch.papers.lars.settings import SEEDS, momentum
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

LARS_8K, LARS_512, SGD_8K = ("AlexNet-BN", 8192), ("AlexNet-BN", 512), ("momentum", 8192)
PAPER = {LARS_8K: 60.1, LARS_512: 60.2, SGD_8K: 58.0}  # top-1 accuracy in %, from Tables 1 and 3


def runs(scale: Scale) -> Cases:
    shared = table3.runs(scale)
    sgd = momentum(scale, "AlexNet-BN", 8192, 0.30, 0.0)
    return {LARS_8K: shared[LARS_8K], LARS_512: shared[LARS_512], SGD_8K: repeat(sgd, SEEDS[scale])}


def draw(results: Results) -> Drawing:
    lines = {"LARS, 8K": LARS_8K, "LARS, 512": LARS_512, "momentum, 8K": SGD_8K}
    charts = {
        name: chart_over_epochs(results, title, lines, name, y)
        for name, title, y in (
            ("test_accuracy", "AlexNet-BN: test accuracy over the epochs", "test accuracy"),
            ("epoch_train_loss", "AlexNet-BN: training loss over the epochs", "training loss"),
        )
    }
    claims = [Claim.better(results, "at 8K LARS is more accurate than momentum", LARS_8K, SGD_8K)]
    claims.append(
        Claim.check(
            "LARS at 8K is within two points of LARS at 512",
            lambda: results.mean(LARS_8K) > results.mean(LARS_512) - 0.02,
        )
    )
    return Drawing(claims, [compare(results, ["method", "batch"], PAPER)], charts)
