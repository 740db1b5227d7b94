"""Section 5.1.2: the LSTM on the Penn Treebank from 20 to 640."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_against, compare, not_worse
from bigbatch.papers.legw.settings import scheme, text_lstm
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

# test perplexity; the paper prints the baseline's and says that 640 keeps it
PAPER: dict[tuple[str, int], float | None] = {
    ("LEGW", 20): 115.91,
    ("LEGW", 160): None,
    ("LEGW", 640): 115.91,
    ("same lr", 640): None,
    ("linear scaling", 640): None,
}


def runs(scale: Scale) -> Cases:
    return {
        (name, batch): repeat(
            text_lstm(scale, batch, schedule=scheme(text_lstm(scale, batch), name)), 3 if scale == "paper" else 1
        )
        for name, batch in PAPER
        if scale != "laptop" or batch != 160
    }


def draw(results: Results) -> Drawing:
    lines = {name: [case for case in PAPER if case[0] == name] for name in ("LEGW", "same lr", "linear scaling")}
    claims = [
        Claim.check("LEGW loses nothing from 20 to 640", lambda: not_worse(results, ("LEGW", 640), ("LEGW", 20))),
        *(
            Claim.better(results, f"at 640 LEGW has a lower perplexity than: {name}", ("LEGW", 640), (name, 640))
            for name in ("same lr", "linear scaling")
        ),
    ]
    chart = chart_against(results, "LSTM on text: perplexity against the batch", lines)
    return Drawing(claims, [compare(results, ["method", "batch"], PAPER, unit="")], {"perplexity": chart})
