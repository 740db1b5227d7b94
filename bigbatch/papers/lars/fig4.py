"""Fig. 4: ResNet-50 with LARS: training curves up to 32K lie close together."""

from __future__ import annotations

from bigbatch.papers.drawing import Claim, Drawing, chart_over_epochs
from bigbatch.papers.lars import table4
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases

PAPER = {case: number for case, number in table4.PAPER.items() if case[0] == "minimal"}  # at the end of the curves


def runs(scale: Scale) -> Cases:
    return {case: tasks for case, tasks in table4.runs(scale).items() if case in PAPER}


def draw(results: Results) -> Drawing:
    lines = {f"{batch:,}": (name, batch) for name, batch in PAPER}
    chart = chart_over_epochs(results, "ResNet-50 with LARS", lines, "test_accuracy", "test accuracy")

    def last_epochs_are_close() -> bool:
        ends = [results.curve(("minimal", batch), "test_accuracy")[0][1] for batch in (256, 8192)]
        return abs(ends[0][-1] - ends[1][-1]) < 0.05

    def large_batches_start_later() -> bool:
        first, second = (results.curve(("minimal", batch), "test_accuracy")[0][1][0] for batch in (256, 16384))
        return first > second

    claims = [
        Claim.check("the curves of 256 and 8K end within five points", last_epochs_are_close),
        Claim.check("large batches, with their warm-up, start behind", large_batches_start_later),
    ]
    return Drawing(claims, [], {"accuracy": chart})
