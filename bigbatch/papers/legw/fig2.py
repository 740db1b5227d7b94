"""Fig. 2: the learning rate over the epochs for ResNet-50 from 1K to 32K, multi-step and polynomial decay."""

from __future__ import annotations

import math

from bigbatch.output.figures import Chart
from bigbatch.papers.drawing import Claim, Drawing, Table, show
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases
from bigbatch.position import Position
from bigbatch.schedules import Baseline, Schedule, legw, multi_step, polynomial

# log2 of the peak learning rate, and the warm-up epochs, by batch
PAPER = {
    1024: (2.5, 0.3125),
    2048: (3.0, 0.625),
    4096: (3.5, 1.25),
    8192: (4.0, 2.5),
    16384: (4.5, 5.0),
    32768: (5.0, 10.0),
}
BASELINE = Baseline(lr=2**2.5, global_batch=1024, warmup_epochs=0.3125)
EPOCHS = 90


def runs(scale: Scale) -> Cases:
    return {}  # a schedule is a formula


def draw(results: Results) -> Drawing:
    charts = {}
    for name, decay in (("multi_step", multi_step(30, 60, 80)), ("polynomial", polynomial(2.0, over="training"))):
        chart = Chart(f"LEGW with {name.replace('_', '-')} decay", "epoch", "learning rate", scale="computed")
        schedule = Schedule(legw, BASELINE, decay)
        for batch in PAPER:
            epochs = [step / 20 for step in range(20 * EPOCHS)]
            chart.line(f"{batch:,}", epochs, [schedule(Position(at, EPOCHS, batch)) for at in epochs], markers=False)
        charts[name] = chart
    peaks = {batch: legw(BASELINE, batch) for batch in PAPER}
    rows = [
        [f"{batch:,}", f"2^{PAPER[batch][0]:g}", show(peak.lr), PAPER[batch][1], show(peak.warmup_epochs)]
        for batch, peak in peaks.items()
    ]
    columns = ["batch", "paper: peak lr", "ours", "paper: warm-up epochs", "ours"]
    exact = all(
        math.isclose(peaks[batch].lr, 2**power) and math.isclose(peaks[batch].warmup_epochs, warmup)
        for batch, (power, warmup) in PAPER.items()
    )
    claim = Claim("k times the batch: √k times the learning rate and k times the warm-up, as printed", exact)
    return Drawing([claim], [Table(columns, rows)], charts)
