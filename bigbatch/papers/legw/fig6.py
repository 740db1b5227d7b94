"""Fig. 6: at the largest batch no tuned learning rate without LEGW's warm-up reaches LEGW."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare
from bigbatch.papers.legw.settings import (
    LARGEST_IMAGE_BATCH,
    LARGEST_TEXT_BATCH,
    SEEDS,
    change,
    image_lstm,
    scheme,
    text_lstm,
)
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

IMAGE_LRS = (0.01, 0.02, 0.04, 0.08, 0.16)
TEXT_LRS = (0.1, 0.2, 0.4, 0.8, 1.6)
# the effective ranges that the paper gives; accuracies and perplexities are drawn, not printed
PAPER: dict[tuple[str, str | float], float | None] = {
    **{("MNIST", lr): None for lr in (*IMAGE_LRS, "LEGW")},
    **{("PTB", lr): None for lr in (*TEXT_LRS, "LEGW")},
}


def runs(scale: Scale, longer: float = 1.0) -> Cases:
    """`longer` multiplies the epochs, for Fig. 7. At the laptop scale the text is left out: an hour a run."""
    cases: Cases = {}
    for data, lr in PAPER:
        if data == "MNIST":
            run = image_lstm(scale, LARGEST_IMAGE_BATCH)
        elif scale == "laptop":
            continue
        else:
            run = text_lstm(scale, LARGEST_TEXT_BATCH)
        run = change(run, epochs=longer * (run.epochs or 1))
        if lr != "LEGW":
            # the range is relative to the baseline's learning rate, which is the recipe's 0.1 in the full setting
            optimizer = run.optimizer.model_dump(mode="json")
            optimizer["lr"] *= float(lr) / 0.1
            run = change(run, optimizer=optimizer, schedule=scheme(run, "same lr") | {"warmup": {"kind": "none"}})
        cases[data, lr] = repeat(run, SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    charts, claims = {}, []
    for data, lrs in (("MNIST", IMAGE_LRS), ("PTB", TEXT_LRS)):
        if not any(results.records.get((data, lr)) for lr in lrs):
            continue
        kind = "images" if data == "MNIST" else "text"
        tuned = {"tuned, no warm-up": [(data, lr) for lr in lrs]}
        chart = chart_against(
            results, f"Tuned lr against LEGW on {kind}", tuned, x="learning rate", place=lambda case: float(case[1])
        )
        legw = 100 * results.mean((data, "LEGW")) if data == "MNIST" else results.mean((data, "LEGW"))
        chart.horizontal_line(legw, "LEGW")
        charts[kind] = chart
        claims.append(
            Claim.better(
                results,
                f"{kind}: LEGW is better than every learning rate tried without it",
                (data, "LEGW"),
                *((data, lr) for lr in lrs),
            )
        )
    return Drawing(claims, [compare(results, ["data", "lr"], PAPER)], charts)
