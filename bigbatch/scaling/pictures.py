"""Charts: efficiency against ranks, what bends it, one step as streams (Gahlot et al. 2020, Fig. 8), time to finish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from bigbatch.output.figures import COLOURS, Chart
from bigbatch.scaling.phases import Bar, StepPhases
from bigbatch.scaling.simulation import TERMS, Point
from bigbatch.scaling.step import Step
from bigbatch.scaling.training_time import WAYS, Choice, best

_LANES = ("communication", "negotiation", "compute")  # from the bottom
_ROOM_FOR_SIZE = 0.05  # of the step
_TERM_NAMES = {
    "jitter": "waiting for the slowest rank",
    "latency": "latency of all-reduces",
    "transfer": "bytes over the links",
    "negotiation": "negotiation",
    "sharing": "computing and sending on the same cores",
}


def efficiency(curves: Mapping[str, Sequence[Point]], scale: str) -> Chart:
    """Fig. 8 (left): weak-scaling efficiency, with the band of nine of ten steps."""
    chart = Chart("Efficiency against ranks", "ranks", "efficiency", scale=scale, log_x=True)
    for name, points in curves.items():
        chart.line(
            name,
            [point.ranks for point in points],
            [point.efficiency for point in points],
            low=[point.low for point in points],
            high=[point.high for point in points],
            markers=len(points) <= 40,
        )
    chart.axes.set_ylim(0, 1.05)
    return chart


def versions(curves: Mapping[str, Sequence[tuple[int, float]]], scale: str) -> Chart:
    """The same training with the collectives and the negotiation of different library versions."""
    chart = Chart("What library versions change", "ranks", "efficiency", scale=scale, log_x=True)
    for name, points in curves.items():
        xs, ys = zip(*points, strict=True)
        chart.line(name, xs, ys, markers=len(points) <= 40, dashed=name.startswith("ddp"))
    chart.axes.set_ylim(0, 1.05)
    return chart


def worth(engine: str, points: Sequence[Point], scale: str) -> Chart:
    """By how much the step would be shorter without each term."""
    chart = Chart(f"What bends the curve: {engine}", "ranks", "ms a step that it is worth", scale=scale, log_x=True)
    for term in TERMS:
        values = [point.worth_us[term] / 1e3 for point in points]
        if any(values):
            chart.line(_TERM_NAMES[term], [point.ranks for point in points], values, markers=len(points) <= 40)
    return chart


def one_step(engine: str, step: Step, scale: str) -> Chart:
    """Fig. 8 (right): what the streams do in one simulated step."""
    return streams(f"One step of {engine} on {step.ranks:,} ranks", step.phases(), scale)


def streams(title: str, phases: StepPhases, scale: str) -> Chart:
    """What the streams do in one step, in milliseconds from its start; messages with their size where there is room."""
    bars, step_us = phases.bars, phases.step_us
    lanes = sorted({(bar.stream, bar.lane) for bar in bars}, key=lambda lane: (_LANES.index(lane[0]), -lane[1]))
    chart = Chart(title, "ms", "", scale=scale, size_inches=(9.0, 1.5 + 0.3 * max(3, len(lanes))))
    spans: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for index, bar in enumerate(bars):
        start, end = bar.start_us / 1e3, bar.end_us / 1e3
        row = lanes.index((bar.stream, bar.lane))
        spans[row, _colour(bar, index)].append((start, end - start))
        chart.rows.append({"series": bar.stream, "what": bar.label, "ms": start, "end ms": end, "bytes": bar.bytes})
        if bar.stream == "communication" and bar.end_us - bar.start_us > _ROOM_FOR_SIZE * step_us:
            size = f"{bar.bytes / 2**20:.2g} MiB" if bar.bytes >= 2**20 / 10 else f"{bar.bytes / 2**10:.2g} KiB"
            chart.axes.text((start + end) / 2, row, size, ha="center", va="center", color="white", fontsize=7)
    for (row, colour), pieces in spans.items():
        # an edge of the same colour keeps what lasts microseconds visible
        chart.axes.broken_barh(pieces, (row - 0.36, 0.72), facecolor=colour, edgecolor=colour, linewidth=0.4)
    chart.axes.set_yticks(range(len(lanes)), [stream + (f" {lane + 1}" if lane else "") for stream, lane in lanes])
    chart.axes.set_xlim(0, step_us / 1e3)
    chart.axes.set_ylim(-0.6, len(lanes) - 0.4)
    _name_phases(chart, [bar for bar in bars if bar.stream == "compute"], step_us, len(lanes) - 1)
    return chart


def _name_phases(chart: Chart, compute: Sequence[Bar], step_us: float, row: int) -> None:
    forward = next(bar for bar in compute if bar.label == "forward")
    backward_end_us = max(bar.end_us for bar in compute if bar.label != "update")
    waited_until_us = min((bar.start_us for bar in compute if bar.label == "update"), default=step_us)
    chart.axes.axvline(backward_end_us / 1e3, color="#444444", linestyle=":", linewidth=1.2)
    for name, start_us, end_us, colour in (
        ("forward", forward.start_us, forward.end_us, "white"),
        ("backward", forward.end_us, backward_end_us, "white"),
        ("waiting", backward_end_us, waited_until_us, "#444444"),
    ):
        if end_us - start_us > _ROOM_FOR_SIZE * step_us:
            chart.axes.text((start_us + end_us) / 2e3, row, name, ha="center", va="center", color=colour)


def _colour(bar: Bar, index: int) -> str:
    """Neighbours in two shades, so that layers and all-reduces can be counted."""
    if bar.stream == "compute":
        return "#6B7480" if bar.label in ("forward", "update") else (COLOURS[0], "#2F86BE")[index % 2]
    return (COLOURS[1], "#A34700")[index % 2] if bar.stream == "communication" else COLOURS[2]


_WAY_NAMES = {
    "best": "the best batch for each",
    "divided": "the global batch of now, divided",
    "filled": "every rank filled",
}


def finish(choices: Sequence[Choice], scale: str) -> Chart:
    """Time to the same loss against ranks, for each way to use them."""
    chart = Chart("Time to finish", "ranks", "time over one rank's", scale=scale, log_x=True, log_y=True)
    for way in WAYS:
        chosen = [choice for choice in choices if choice.way == way]
        if not chosen:
            continue
        chart.line(
            _WAY_NAMES[way],
            [choice.ranks for choice in chosen],
            [choice.time for choice in chosen],
            low=[choice.time_low for choice in chosen],
            high=[choice.time_high for choice in chosen],
            markers=len(chosen) <= 40,
        )
    winner = best(choices)
    chart.vertical(winner.ranks, f"{winner.ranks:,} ranks, batch {winner.global_batch:,}")
    return chart
