"""Fig. 1: AlexNet-BN: the gap between test and training loss is the same at a small and at a large batch."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, Table, chart_over_epochs, show
from bigbatch.papers.lars.settings import SEEDS, momentum
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

PAPER: dict[tuple[int, float], float | None] = {(256, 0.02): None, (8192, 0.30): None}  # drawn, not printed
SMALL, LARGE = PAPER


def runs(scale: Scale) -> Cases:
    return {case: repeat(momentum(scale, "AlexNet-BN", *case, 0.0), SEEDS[scale]) for case in PAPER}


def gap(results: Results, case: tuple[int, float]) -> float:
    """Return test loss − training loss at the end."""
    return results.mean(case, "test_loss") - results.mean(case, "train_loss")


def draw(results: Results) -> Drawing:
    charts = {
        name: chart_over_epochs(
            results, title, {f"batch {results.batch(case):,}": case for case in results.records}, name, "loss"
        )
        for name, title in (("epoch_train_loss", "Training loss"), ("test_loss", "Test loss"))
    }
    rows = [
        [
            f"{results.batch(case):,}",
            *(show(results.mean(case, n)) for n in ("train_loss", "test_loss")),
            show(gap(results, case)),
        ]
        for case in results.records
    ]
    claims = [
        Claim.check(
            "the gap at the large batch is not larger than at the small one by more than a fifth of the test loss",
            lambda: gap(results, LARGE) - gap(results, SMALL) < 0.2 * results.mean(LARGE, "test_loss"),
        ),
        Claim.check(
            "the large batch has the higher training loss: it is behind in training, not in generalisation",
            lambda: results.mean(LARGE, "train_loss") > results.mean(SMALL, "train_loss"),
        ),
    ]
    return Drawing(claims, [Table(["batch", "training loss", "test loss", "gap"], rows)], charts)
