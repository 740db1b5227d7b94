"""What `bigbatch scale simulate`, `plan` and `published` print and write: tables, figures, JSON, CSV and pages."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bigbatch.artifacts import atomic, provenance
from bigbatch.artifacts.metrics import dump_json
from bigbatch.output import formatting
from bigbatch.output.figures import COLOURS, Band, Chart
from bigbatch.output.formatting import format_csv
from bigbatch.output.page import Page
from bigbatch.scaling.machine import NcclLinks, find_machine
from bigbatch.scaling.phases import Bar, StepPhases
from bigbatch.scaling.published import PublishedComparison, compare_published
from bigbatch.scaling.simulation import TERMS, ScalingPoint, Simulation, StepSimulator
from bigbatch.scaling.training_time import BATCH_RULES, TrainingPlan, TrainingTime, shortest

# tables and figures of any report

TableRow = dict[str, object]  # what is in each column, by its heading


def print_table(rows: Sequence[TableRow], *, left: Collection[str] = (), title: str | None = None) -> None:
    cells = [list(map(format_cell, row.values())) for row in rows]
    formatting.print_table(list(rows[0] if rows else ()), cells, left=left, title=title)


def print_text(text: str) -> None:
    Console().print(text, highlight=False)


def add_table(page: Page, rows: Sequence[TableRow]) -> None:
    page.table(list(rows[0] if rows else ()), [list(row.values()) for row in rows])


def format_cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def phase_cells(phases: StepPhases) -> TableRow:
    """One step in a table: its phases in ms, and how many messages it sent, of how many KiB."""
    times_us = (phases.forward_us, phases.backward_us, phases.exposed_us, phases.overlapped_us, phases.negotiation_us)
    names = ("forward", "backward", "exposed", "overlap", "agree", "update")
    cells = [None if us is None else round(us / 1e3, 3) for us in (*times_us, phases.update_us)]
    sizes = phases.message_bytes
    few = len(sizes) <= 4
    kib = (" " if few else " to ").join(f"{size / 2**10:,.0f}" for size in (sizes if few else (min(sizes), max(sizes))))
    return {**dict(zip(names, cells, strict=True)), "sends": f"{len(sizes)}: {kib} KiB" if sizes else ""}


def describe_commit() -> str:
    """Return the commit of the working directory, and today's date."""
    commit = provenance.collect()["commit"] or "unknown"
    return f"commit {commit[:12]}, {time.strftime('%Y-%m-%d', time.gmtime())}"


def write_files(
    folder: Path, name: str, page: Page, numbers: Any, rows: Sequence[TableRow], charts: Mapping[str, Chart]
) -> list[Path]:
    """Write NAME.json, NAME.csv, the figures and, as the last, NAME.html."""
    written = [
        atomic.write_text(folder / f"{name}.json", dump_json(numbers, indent=2)),
        atomic.write_text(folder / f"{name}.csv", format_csv(rows)),
        *(path for figure, chart in charts.items() for path in chart.save(folder / figure)),
    ]
    return [*written, page.write(folder / f"{name}.html")]


_STREAMS = ("communication", "negotiation", "compute")  # from the bottom
_LEAST_LABELLED = 0.05  # of the step: shorter bars have no room for a label


def draw_bars(chart: Chart, bars: Sequence[Bar], rows: Sequence[int], colours: Sequence[str], **options: Any) -> None:
    """Draw activities in milliseconds. An edge of the same colour keeps bars of microseconds visible."""
    starts_ms = [bar.start_us / 1e3 for bar in bars]
    widths_ms = [(bar.end_us - bar.start_us) / 1e3 for bar in bars]
    chart.axes.barh(rows, widths_ms, left=starts_ms, color=colours, edgecolor=colours, linewidth=0.4, **options)


def draw_streams(title: str, phases: StepPhases, scale: str) -> Chart:
    """Fig. 8 (right): the streams of one step, in milliseconds from its start, with the sizes of messages."""
    bars, step_us = phases.bars, phases.step_us
    lanes = sorted({(bar.stream, bar.lane) for bar in bars}, key=lambda lane: (_STREAMS.index(lane[0]), -lane[1]))
    rows = [lanes.index((bar.stream, bar.lane)) for bar in bars]
    chart = Chart(title, "ms", "", scale=scale, size_inches=(9.0, 1.5 + 0.3 * max(3, len(lanes))))
    draw_bars(chart, bars, rows, [_bar_colour(bar, index) for index, bar in enumerate(bars)], height=0.72)

    def add_label(text: str, start_us: float, end_us: float, row: int, **style: Any) -> None:
        if end_us - start_us > _LEAST_LABELLED * step_us:
            chart.axes.text((start_us + end_us) / 2e3, row, text, ha="center", va="center", **style)

    for row, bar in zip(rows, bars, strict=True):
        times_ms = {"ms": bar.start_us / 1e3, "end ms": bar.end_us / 1e3}
        chart.rows.append({"series": bar.stream, "what": bar.label, **times_ms, "bytes": bar.bytes})
        if bar.stream == "communication":
            size = f"{bar.bytes / 2**20:.2g} MiB" if bar.bytes >= 2**20 / 10 else f"{bar.bytes / 2**10:.2g} KiB"
            add_label(size, bar.start_us, bar.end_us, row, color="white", fontsize=7)
    top, computed_us = len(lanes) - 1, phases.forward_us + phases.backward_us
    add_label("forward", 0.0, phases.forward_us, top, color="white")
    add_label("backward", phases.forward_us, computed_us, top, color="white")
    add_label("waiting", computed_us, step_us - phases.update_us, top, color="#444444")
    chart.axes.axvline(computed_us / 1e3, color="#444444", linestyle=":", linewidth=1.2)
    chart.axes.set_yticks(range(len(lanes)), [stream + (f" {lane + 1}" if lane else "") for stream, lane in lanes])
    chart.axes.set(xlim=(0, step_us / 1e3), ylim=(-0.6, len(lanes) - 0.4))
    return chart


def _bar_colour(bar: Bar, index: int) -> str:
    """Neighbours in two shades, so that layers and all-reduces can be counted."""
    if bar.stream == "compute":
        return "#6B7480" if bar.label in ("forward", "update") else (COLOURS[0], "#2F86BE")[index % 2]
    return (COLOURS[1], "#A34700")[index % 2] if bar.stream == "communication" else COLOURS[2]


# simulate

_SIMULATED = "Simulated: nobody ran this. The table of published points shows how far the simulator can be trusted."
_VERSIONS = (
    "The result depends on library versions. NCCL before 2.4 had rings only, whose latency grows with the number of "
    "ranks and is paid by every all-reduce, and Horovod sends many small ones. Without its response cache, Horovod's "
    "rank 0 reads a request of every rank for every tensor. Either one is enough to bend Horovod's curve; with trees "
    "and the cache neither does. Both follow the libraries' code; neither is fitted to a curve."
)
_VARIANTS: dict[str, tuple[tuple[str, str, dict[str, int]], ...]] = {
    "ddp": (("ring or tree", "auto", {}), ("rings only", "ring", {})),
    "horovod": (
        ("ring or tree", "auto", {"cache_capacity": 1024}),
        ("rings only", "ring", {"cache_capacity": 1024}),
        ("ring or tree, no cache", "auto", {"cache_capacity": 0}),
    ),
}
_TERM_NAMES = {
    "jitter": "waiting for the slowest rank",
    "latency": "latency of all-reduces",
    "transfer": "bytes over the links",
    "negotiation": "negotiation",
    "sharing": "computing and communicating on the same cores",
}


def _curve_table(points: Sequence[ScalingPoint]) -> list[TableRow]:
    return [
        {
            "ranks": f"{one.ranks:,}",
            "step ms": f"{one.step_us / 1e3:.2f}",
            "exposed": f"{one.exposed_us / 1e3:.2f}",
            "all-reduces": one.all_reduces,
            "efficiency": f"{one.efficiency:.1%}",
            "9 of 10 steps": f"{one.low:.1%} to {one.high:.1%}",
            "bottleneck": one.bottleneck,
        }
        for one in points
    ]


def print_simulation(found: Simulation) -> None:
    profile = found.profile
    print_text(
        f"{profile.model}: {profile.gradient_bytes / 2**20:.1f} MiB of gradients, batch {profile.rank_batch} per rank, "
        f"{profile.compute_us / 1e3:.1f} ms per step alone ({profile.source}); machine {found.machine.name}"
    )
    for name, points in found.curves.items():
        print_table(_curve_table(points), title=f"{name} (simulated)")


def write_simulation(found: Simulation, folder: Path, command: str, pictured_ranks: int) -> Path:
    """Write simulate.json, simulate.csv, the figures of Gahlot et al. 2020, Fig. 8, and a page; return the page."""
    scale = f"simulated: {found.profile.model}, batch {found.profile.rank_batch} per rank, machine {found.machine.name}"
    curves = {"efficiency": draw_efficiency(found.curves, scale)}
    if isinstance(found.machine.links, NcclLinks):
        curves["versions"] = draw_versions(found, scale)
    steps = {
        f"step_{name}": draw_streams(
            f"One step of {name} on {pictured_ranks:,} ranks", one.expected_step(pictured_ranks).phases(), scale
        )
        for name, one in found.simulators.items()
    }
    page = Page(f"{found.profile.model} on {found.machine.name}: scaling, simulated", _SIMULATED)
    page.key_numbers(
        (f"{name} on {last.ranks:,} ranks ({last.low:.1%} to {last.high:.1%})", f"{last.efficiency:.1%}")
        for name, (*_, last) in found.curves.items()
    )
    captions = ("Weak scaling: the same batch per rank. The band holds nine of ten steps.", "Other library versions.")
    page.charts(zip(curves.values(), captions, strict=False))
    if "versions" in curves:
        page.text(_VERSIONS)
    page.heading("One step")
    page.text(
        "Compute stream above, communication below, as in Fig. 8 of Gahlot et al. 2020. Right of the dotted line "
        "the backward pass is over and communication is no longer hidden."
    )
    page.charts(((chart, "The streams of the slowest rank.") for chart in steps.values()), wide=True)
    page.heading("What bends the curve")
    page.text("Each line: by how much a step would be shorter if this term alone cost nothing.")
    page.charts((draw_term_costs(name, points, scale), "") for name, points in found.curves.items())
    page.heading("Numbers")
    about = ({"engine": one.engine, "nodes": one.nodes} for one in found.points)
    add_table(page, [first | row for first, row in zip(about, _curve_table(found.points), strict=True)])
    add_published_points(page, compare_published())
    page.footer(
        [command, f"times: {found.profile.source}", found.machine.about, f"{found.cpu_seconds:.1f} CPU seconds"]
    )
    return write_files(folder, "simulate", page, found.to_json(), found.rows(), curves | steps)[-1]


def _efficiency_chart(title: str, scale: str) -> Chart:
    chart = Chart(title, "ranks", "efficiency", scale=scale, log_x=True)
    chart.axes.set_ylim(0, 1.05)
    return chart


def draw_efficiency(curves: Mapping[str, Sequence[ScalingPoint]], scale: str) -> Chart:
    """Fig. 8 (left): weak-scaling efficiency, with the band of nine of ten steps."""
    chart = _efficiency_chart("Efficiency against ranks", scale)
    for name, points in curves.items():
        band = Band([one.low for one in points], [one.high for one in points])
        chart.line(name, [one.ranks for one in points], [one.efficiency for one in points], band=band)
    return chart


def draw_versions(found: Simulation, scale: str) -> Chart:
    """The same training with the collectives and the negotiation of different library versions."""
    chart = _efficiency_chart("What library versions change", scale)
    for name, simulator in found.simulators.items():
        ranks = [point.ranks for point in found.curves[name]]
        for label, algorithms, options in _VARIANTS[name]:
            machine = found.machine.with_settings({"links.algorithms": algorithms})
            variant = StepSimulator(found.profile, simulator.engine.model_copy(update=options), machine)
            chart.line(f"{name}, {label}", ranks, map(variant.efficiency, ranks), dashed=name == "ddp")
    return chart


def draw_term_costs(engine: str, points: Sequence[ScalingPoint], scale: str) -> Chart:
    """By how much the step would be shorter without each term."""
    chart = Chart(f"What bends the curve: {engine}", "ranks", "ms per step", scale=scale, log_x=True)
    for term in TERMS:
        values = [point.term_cost_us[term] / 1e3 for point in points]
        if any(values):
            chart.line(_TERM_NAMES[term], [point.ranks for point in points], values)
    return chart


# plan

_PLAN_WARNING = "Simulated: nobody ran this. 'bigbatch scale published' shows how far the simulator can be trusted."
_SMALL_BATCHES = (
    "Small batches per rank leave a device half idle. All that the simulator knows of this is a least time per layer "
    "(kernel_us of the machine's device): measure a step at this batch per rank before relying on it."
)
_RULE_NAMES = {
    "best": "the best batch for each",
    "divided": "the present global batch, divided",
    "filled": "the largest batch that fits",
}


def _plan_table(times: Sequence[TrainingTime]) -> list[TableRow]:
    """The best batch for each number of ranks."""
    best = shortest(times)
    return [
        {
            "ranks": f"{one.ranks:,}",
            "global batch": f"{one.global_batch:,}",
            "per rank": f"{one.rank_batch:,}",
            "step ms": f"{one.step_us / 1e3:.2f}",
            "samples": f"{one.samples:.3g} x",
            "time": f"{one.time:.3g}",
            "speed-up": _format_speedup(one.time),
            "": "<- best" if one is best else "",
        }
        for one in times
        if one.batch_rule == "best"
    ]


def print_plan(plan: TrainingPlan) -> None:
    print_table(_plan_table(plan.times))
    print_text(describe_plan(plan.times, plan.most_ranks))
    print_text(_PLAN_WARNING)
    if shortest(plan.times).rank_batch < max(one.rank_batch for one in plan.times):
        print_text(_SMALL_BATCHES)


def describe_plan(times: Sequence[TrainingTime], most_ranks: int) -> str:
    """The answer in a sentence or two."""
    best = shortest(times)
    text = (
        f"{_format_ranks(best)} at global batch {best.global_batch:,} finish first: {_format_speedup(best.time)} times "
        "as fast as one rank"
    )
    if best.time_low != best.time_high:
        low, high = _format_speedup(best.time_high), _format_speedup(best.time_low)
        text += f" ({low} to {high} over the noise scale's interval)"
    for longer, words in ((1.1, "10 % longer"), (2.0, "twice as long")):
        fewest = min((one for one in times if one.time <= longer * best.time), key=lambda one: one.ranks)
        if fewest.ranks < best.ranks:
            text += f"; {_format_ranks(fewest)} at {fewest.global_batch:,} take at most {words}"
    if best.ranks == most_ranks:
        text += f". More than {most_ranks:,} ranks were not simulated, and may be better"
    return text + "."


def write_plan(plan: TrainingPlan, folder: Path, command: str) -> Path:
    """Write plan.json, plan.csv, a figure and a page; return the page."""
    times, about = plan.times, plan.about
    answer, rows = describe_plan(times, plan.most_ranks), [asdict(one) for one in times]
    scale = f"simulated: {about['model']}, machine {about['machine']}, noise scale {about['noise_scale']:,.0f}"
    chart = draw_training_times(times, scale)
    page = Page(f"How many ranks for {about['model']}", _PLAN_WARNING)
    page.text(answer)
    page.charts([(chart, "Lower is faster. The band is the interval of the noise scale, where it is known.")])
    page.text("The best batch for each number of ranks. Times and samples are over those of one rank at present.")
    add_table(page, _plan_table(times))
    page.text(_SMALL_BATCHES, kind="warning")
    page.footer([command, *(f"{name}: {value}" for name, value in about.items())])
    numbers = {**about, "answer": answer, "choices": rows}
    return write_files(folder, "plan", page, numbers, rows, {"training_time": chart})[-1]


def draw_training_times(times: Sequence[TrainingTime], scale: str) -> Chart:
    """Time to the same loss against ranks, for each rule to choose the batch."""
    chart = Chart("Training time", "ranks", "time over one rank's", scale=scale, log_x=True, log_y=True)
    for rule in BATCH_RULES:
        chosen = [one for one in times if one.batch_rule == rule]
        if chosen:
            band = Band([one.time_low for one in chosen], [one.time_high for one in chosen])
            chart.line(_RULE_NAMES[rule], [one.ranks for one in chosen], [one.time for one in chosen], band=band)
    best = shortest(times)
    chart.vertical_line(best.ranks, f"{best.ranks:,} ranks, batch {best.global_batch:,}")
    return chart


def _format_ranks(one: TrainingTime) -> str:
    return "1 rank" if one.ranks == 1 else f"{one.ranks:,} ranks"


def _format_speedup(time: float) -> str:
    return f"{1 / time:,.0f}" if time < 0.01 else f"{1 / time:.3g}"


# published


def published_rows(comparisons: Sequence[PublishedComparison]) -> list[TableRow]:
    """The table of published points."""
    return [
        {
            "what": one.published.what,
            "ranks": one.published.ranks,
            "published": f"{one.published.efficiency:.1%}",
            "simulated": f"{one.efficiency:.1%}",
            "error": f"{_format_error(one)} points",
            "9 of 10 steps": f"{one.low:.1%} to {one.high:.1%}",
            "over versions": f"{one.least:.1%} to {one.most:.1%}" if one.published.model else "",
            "bottleneck": one.bottleneck,
            "verdict": one.verdict,
            "source": one.published.source,
            "assumed": one.published.assumed,
        }
        for one in comparisons
    ]


def add_published_points(page: Page, comparisons: Sequence[PublishedComparison]) -> None:
    """Add the table of published points, and a sentence for each that the simulator gets wrong."""
    page.heading("Compared with published measurements")
    page.text(_describe_fit(comparisons))
    add_table(page, published_rows(comparisons))
    for line in describe_failures(comparisons):
        page.text(line, kind="warning")


def _describe_fit(comparisons: Sequence[PublishedComparison]) -> str:
    fitted = next(one.published for one in comparisons if one.fitted)
    jitter = find_machine(fitted.machine).jitter
    return (
        f"One number is fitted, on one point: the jitter of a rank, {jitter.fraction:.2%} of its step "
        f"({jitter.kind}), so that {fitted.what} on {fitted.ranks:,} ranks has its published efficiency. "
        "The other points test it; the same jitter is used on every machine."
    )


def _format_error(one: PublishedComparison) -> str:
    return f"{round(100 * one.error, 1) + 0.0:+.1f}"  # no -0.0


def describe_failures(comparisons: Sequence[PublishedComparison]) -> list[str]:
    """One sentence for each point that the simulator gets wrong."""
    return [
        f"It fails for {one.published.what} on {one.published.ranks:,} ranks: {one.efficiency:.1%} where "
        f"{one.published.efficiency:.1%} was measured (the bottleneck is {one.bottleneck}). {one.published.caveat}"
        for one in comparisons
        if one.verdict == "fails"
    ]


def print_published(comparisons: Sequence[PublishedComparison]) -> None:
    print_text(_describe_fit(comparisons))
    rows: list[TableRow] = [
        {
            "": one.published.what,
            "ranks": f"{one.published.ranks:,}",
            "paper": f"{one.published.efficiency:.1%}",
            "ours": f"{one.efficiency:.1%}",
            "error": _format_error(one),
            "9 of 10": f"{100 * one.low:.0f} to {100 * one.high:.0f}",
            "verdict": one.verdict,
        }
        for one in comparisons
    ]
    print_table(rows, left=("", "verdict"))
    for line in describe_failures(comparisons):
        print_text(line)


def write_published(comparisons: Sequence[PublishedComparison], folder: Path, command: str) -> list[Path]:
    """Write published.html and published.csv, with the command, the commit and the date."""
    page = Page("Published points", "Efficiencies are simulated, not run.")
    add_published_points(page, comparisons)
    page.footer([command, describe_commit()])
    return [
        atomic.write_text(folder / "published.csv", format_csv(published_rows(comparisons))),
        page.write(folder / "published.html"),
    ]
