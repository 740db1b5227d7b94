"""Fig. 4: Adam and Adadelta against four ways of scaling a tuned learning rate to large batches."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, better, chart_against, compare
from bigbatch.papers.legw.settings import ADADELTA, ADAM, SEEDS, image_lstm, scheme
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

SCHEMES = ("same lr", "linear scaling", "linear scaling, poly", "linear scaling, poly, 5-epoch warm-up")
ADAPTIVE = {"Adam": ADAM, "Adadelta": ADADELTA}
PAPER: dict[tuple[str, int], float | None] = {
    (name, batch): None for name in (*SCHEMES, *ADAPTIVE) for batch in (128, 1024, 8192)
}  # drawn, not printed


def runs(scale: Scale) -> Cases:
    cases: Cases = {}
    for name, batch in PAPER:
        fields = ADAPTIVE.get(name) or {"schedule": scheme(image_lstm(scale, batch), name)}
        if scale != "smoke" or batch != 1024:
            cases[name, batch] = repeat(image_lstm(scale, batch, **fields), SEEDS[scale])
    return cases


def draw(results: Results) -> Drawing:
    batches = list(dict.fromkeys(batch for _, batch in PAPER))
    series = {name: [(name, batch) for batch in batches] for name in (*SCHEMES, *ADAPTIVE)}
    claims = [
        Claim.better(results, f"at the largest batch Adam is more accurate than: {name}", ("Adam", 8192), (name, 8192))
        for name in SCHEMES
    ]
    claims.append(
        Claim.check(
            "all of them lose accuracy from the smallest batch to the largest",
            lambda: all(better(results, (name, 128), (name, 8192)) for name in series),
        )
    )
    chart = chart_against(results, "Adam and Adadelta against four tuning schemes", series)
    return Drawing(claims, [compare(results, ["method", "batch"], PAPER)], {"accuracy": chart})
