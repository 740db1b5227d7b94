"""One real step as a picture. The panels answer to Gahlot et al. 2020, Fig. 8 (right).

(a) their profile of a step with Horovod: what computes and what sends; (b) their Horovod timeline of a step: what
happens to each tensor; (c) their profile of a step with DDP. Theirs show GPU kernels, ours the threads of a rank.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from bigbatch.output.figures import COLOURS, FADED, Chart
from bigbatch.scaling.phases import Bar
from bigbatch.scaling.report import draw_streams
from bigbatch.scaling.trace.seen import Seen

_MOST_NAMED_ROWS = 65
_TENSOR_COLOURS = {  # drawn in this order: what is short comes last
    "queue": ("waits for its turn", "#D5D9DE"),
    "communication": ("all-reduce", COLOURS[1]),
    "copy": ("copied to or from the buffer", COLOURS[4]),
    "negotiation": ("negotiation", COLOURS[2]),
}


@dataclass(frozen=True)
class Panel:
    name: str  # of its files
    chart: Chart
    caption: str


def panels(seen: Seen, scale: str) -> list[Panel]:
    """The step of an engine; for Horovod also what its timeline says of each tensor."""
    letter = {"horovod": "(a) ", "ddp": "(c) "}.get(seen.engine, "")
    ranks = f"{seen.ranks} rank" + ("s" if seen.ranks > 1 else "")
    title = f"{letter}One step of {seen.engine} on {ranks}, rank {seen.rank}"
    found = [Panel(f"trace_{seen.engine}", draw_streams(title, seen.phases, scale), _caption(seen.engine))]
    if seen.tensors:
        title = f"(b) Horovod's timeline of the same step, {ranks}"
        found.append(Panel(f"trace_{seen.engine}_timeline", _tensors(title, seen, scale), _TIMELINE_CAPTION))
    return found


_STREAMS = (
    "Backward is divided where a gradient was ready; right of the dotted line the rank has nothing left to compute and "
    "waits for the sum over ranks."
)
_TIMELINE_CAPTION = (
    "Answers to Fig. 8 (b): a row for each tensor, in the order in which gradients were ready. A negotiation lasts "
    "from the cycle in which a first rank has the gradient to the one in which all have it. Tensors whose all-reduces "
    "begin and end together went in one buffer."
)


def _caption(engine: str) -> str:
    if engine == "horovod":
        return (
            "Answers to Fig. 8 (a): compute and communication of a step with Horovod. A bar of communication is a "
            f"fused buffer, copies included. {_STREAMS}"
        )
    if engine == "ddp":
        return (
            f"Answers to Fig. 8 (c): a step with DDP. A bar of communication is the all-reduce of a bucket. {_STREAMS}"
        )
    if engine == "local":
        return "One process, for comparison: nothing is sent. The paper has no such panel."
    return (
        "The paper has no such panel. A bar of communication is one collective; waiting cannot be told from computing."
    )


def _tensors(title: str, seen: Seen, scale: str) -> Chart:
    tensors = _in_order(seen.tensors)
    size_inches = (9.0, min(8.0, 1.7 + 0.17 * len(tensors)))
    # gradients come from top to bottom, so that the corner below is free
    chart = Chart(title, "ms", "", scale=scale, size_inches=size_inches, legend_place="lower left")
    rows = {tensor: len(tensors) - 1 - index for index, tensor in enumerate(tensors)}
    for stream, (name, colour) in _TENSOR_COLOURS.items():
        pieces: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for bar in seen.tensors:
            if bar.stream == stream:
                start, end = bar.start_us / 1e3, bar.end_us / 1e3
                pieces[rows[bar.label]].append((start, end - start))
                chart.rows.append({"series": name, "tensor": bar.label, "ms": start, "end ms": end})
        for index, (row, spans) in enumerate(pieces.items()):
            label = name if index == 0 else "_again"  # what begins with _ is not in a legend
            chart.axes.broken_barh(
                spans, (row - 0.4, 0.8), facecolor=colour, edgecolor=colour, linewidth=0.4, label=label
            )
    if len(tensors) <= _MOST_NAMED_ROWS:
        chart.axes.set_yticks(list(rows.values()), list(rows), fontsize=5.5)
    else:
        chart.axes.set_yticks([])
        chart.axes.set_ylabel(f"{len(tensors)} tensors")
    chart.axes.set_xlim(0, seen.phases.step_us / 1e3)
    chart.axes.set_ylim(-0.6, len(tensors) - 0.4)
    last_us = max(bar.end_us for bar in seen.phases.bars if bar.stream == "compute" and bar.label != "update")
    chart.axes.axvline(last_us / 1e3, color=FADED, linestyle=":", linewidth=1.2)
    return chart


def _in_order(bars: tuple[Bar, ...]) -> list[str]:
    """By when a tensor is first heard of."""
    first: dict[str, float] = {}
    for bar in bars:
        first[bar.label] = min(bar.start_us, first.get(bar.label, bar.start_us))
    return sorted(first, key=lambda tensor: first[tensor])
