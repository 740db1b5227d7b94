"""Fig. 3: the curvature along the gradient, L(x, g), has an early peak that moves right as the batch grows."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from bigbatch.papers.drawing import Claim, Drawing, Table, chart_probe, rises, show
from bigbatch.papers.legw.settings import SEEDS, image_lstm
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases, repeat

PAPER: dict[int, float | None] = {128: None, 512: None, 2048: None, 8192: None}  # drawn, not printed


def runs(scale: Scale) -> Cases:
    """Train at one learning rate without a warm-up: it would move the peak by itself."""
    cases: Cases = {}
    for batch in PAPER:
        every = max(1, {"smoke": 64, "laptop": 64, "paper": 1024}[scale] // batch)
        probes = [{"name": "lipschitz", "every_steps": every, "samples": 64 if scale == "smoke" else 512}]
        run = image_lstm(scale, batch)
        fields: dict[str, Any] = {"schedule": "constant", "probes": probes}
        epochs = min(run.epochs or 25, 25 * batch / 8192 + 2.5)  # the early iterations, where the peak is
        cases[batch] = repeat(image_lstm(scale, batch, **fields, epochs=epochs), SEEDS[scale])
    return cases


def _peaks(results: Results, batch: int, at: str) -> list[float]:
    """Return where each seed has its largest |L|."""
    return [float(max(rows, key=lambda row: abs(row["exact"]))[at]) for rows in results.probed(batch, "lipschitz")]


def draw(results: Results) -> Drawing:
    done = [batch for batch in PAPER if results.records.get(batch)]
    lines = {
        f"{results.batch(batch):,}": [(row["epochs"], row["exact"]) for row in results.probed(batch, "lipschitz")[0]]
        for batch in done
    }
    axes = ("epoch", "L(x, g) = gᵀHg / ‖g‖², seed 0")
    chart = chart_probe(
        results, "Curvature along the gradient over the training", axes, lines, log_x=False, log_y=False
    )
    rows = [
        [f"{results.batch(batch):,}", *(show(fmean(_peaks(results, batch, at))) for at in ("step", "epochs"))]
        for batch in done
    ]
    claims = [
        Claim.check(
            "the peak of L(x, g) comes later in epochs as the batch grows",
            lambda: rises(fmean(_peaks(results, batch, "epochs")) for batch in PAPER),
        ),
        Claim.check(
            "the peak is early: in the first half of what was trained at the smallest batch",
            lambda: fmean(_peaks(results, min(PAPER), "epochs")) < (results.run(min(PAPER)).epochs or 0) / 2,
        ),
    ]
    table = Table(["batch", "step of the largest |L|", "epoch of the largest |L|"], rows)
    return Drawing(claims, [table], {"lipschitz": chart})
