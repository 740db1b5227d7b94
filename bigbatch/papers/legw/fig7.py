"""Fig. 7: the same as Fig. 6 where all are trained four times as long."""

from __future__ import annotations

from bigbatch.papers.drawing import Drawing
from bigbatch.papers.legw import fig6
from bigbatch.papers.records import Results, Scale
from bigbatch.papers.tasks import Cases

PAPER = fig6.PAPER  # 100 epochs on MNIST, 50 on the Penn Treebank; drawn, not printed
LONGER = {"MNIST": 4.0, "PTB": 50 / 13}


def runs(scale: Scale) -> Cases:
    found: Cases = {}
    for data, longer in LONGER.items():
        factor = longer if scale != "smoke" else 2.0
        found |= {case: tasks for case, tasks in fig6.runs(scale, factor).items() if case[0] == data}
    return found


def draw(results: Results) -> Drawing:
    return fig6.draw(results)
