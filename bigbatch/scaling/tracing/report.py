"""The report of a trace: a table on the terminal, the Chrome trace, figures of one step, numbers, one page.

Figures correspond to Gahlot et al. 2020, Fig. 8 (right): (a) their profile of a step with Horovod, computation and
communication; (b) their Horovod timeline of a step, with each tensor; (c) their profile of a step with DDP. Theirs show
GPU kernels, ours the threads of a rank.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.output.figures import COLOURS, FADED, Chart
from bigbatch.output.formatting import terminal_table
from bigbatch.output.page import Page
from bigbatch.scaling.report import add_table, describe_commit, draw_bars, draw_streams, markdown_table
from bigbatch.scaling.tracing.chrome_trace import write_chrome_trace
from bigbatch.scaling.tracing.trace import Trace
from bigbatch.scaling.tracing.traced_step import TracedStep

_PHASES = ("step", "forward", "backward", "exposed", "update", "overlapped", "negotiation")
_EXPLANATION = (
    "All times in milliseconds, of the fastest of the traced steps on rank 0, under the profiler, which makes a step "
    "longer: compare the parts of a step, not the engines' speeds ('bigbatch scale measure' does that). Exposed is "
    "communication that no computation hides: from the rank's last own gradient to the sum over ranks. Overlapped is "
    "communication while the rank still computed. Negotiation is the time in which Horovod knew a gradient of one rank "
    "and waited for another's; most of it lies beside computation."
)
_MOST_NAMED_ROWS = 65
_TENSOR_COLOURS = {  # drawn in this order: short activities come last
    "queue": ("waits for its turn", "#D5D9DE"),
    "communication": ("all-reduce", COLOURS[1]),
    "copy": ("copied to or from the buffer", COLOURS[4]),
    "negotiation": ("negotiation", COLOURS[2]),
}
_STREAMS = (
    "Backward is divided where a gradient was ready; right of the dotted line the rank has nothing left to compute and "
    "waits for the sum over ranks."
)
_CAPTIONS = {
    "horovod": "Corresponds to Fig. 8 (a): compute and communication of a step with Horovod. A bar of communication is "
    f"a fused buffer, copies included. {_STREAMS}",
    "ddp": "Corresponds to Fig. 8 (c): a step with DDP. A bar of communication is the all-reduce of a bucket. "
    f"{_STREAMS}",
    "local": "One process, for comparison: nothing is sent. The paper has no such panel.",
    "fsdp": "The paper has no such panel. A bar of communication is one collective; waiting cannot be told from "
    "computation.",
}
_TIMELINE_CAPTION = (
    "Corresponds to Fig. 8 (b): a row for each tensor, in the order in which gradients were ready. A negotiation lasts "
    "from the cycle in which a first rank has the gradient to the one in which all have it. Tensors whose all-reduces "
    "begin and end together were in one buffer."
)


def print_trace(trace: Trace) -> None:
    """Print a column for each engine: a terminal has room for few."""
    engines, *columns = zip(*(row.items() for row in _step_table(trace.steps)), strict=True)
    lines = [[column[0][0], *(_format_cell(value) for _, value in column)] for column in columns]
    console = Console()
    console.print(
        f"{trace.model.label}, batch {trace.rank_batch} per rank: ms of the fastest traced step", highlight=False
    )
    console.print(terminal_table(["", *(str(engine) for _, engine in engines)], lines, left=("",)))


def _step_table(steps: Sequence[TracedStep]) -> list[dict[str, object]]:
    rows = []
    for step in steps:
        times_us = {name: getattr(step.phases, f"{name}_us") for name in _PHASES}
        sizes = step.phases.message_bytes
        mib = [f"{size / 2**20:.3g}" for size in (sizes if len(sizes) <= 6 else (min(sizes), max(sizes)))]
        rows.append(
            {
                "engine": step.engine,
                "ranks": step.ranks,
                **{name: "" if us is None else us / 1e3 for name, us in times_us.items()},
                "messages": len(sizes),
                "MiB each": (" " if len(sizes) <= 6 else " to ").join(mib),
            }
        )
    return rows


def _format_cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def write_report(trace: Trace, folder: Path, command: str) -> list[Path]:
    """Write trace.json, trace_steps.json, figures (SVG, PNG, CSV), trace.md and, as the last, trace.html."""
    sample = " x ".join(map(str, trace.model.sample_shape))
    scale = (
        f"measured under the profiler: {trace.model.label}, samples of {sample}, batch {trace.rank_batch} per rank, "
        f"{os.cpu_count()} cores"
    )
    figures = [figure for step in trace.steps for figure in draw_step(step, scale)]
    rows, warning, options = _step_table(trace.steps), busy_warning(trace.loads), trace.model.engine_options
    about = [
        command,
        describe_commit(),
        f"load of one minute before each engine: {', '.join(f'{load:.2f}' for load in trace.loads)}; "
        f"{os.cpu_count()} cores, {platform.machine()}",
        *(f"{one.engine}: {options.get(one.engine) or 'its defaults'}" for one in trace.recordings),
    ]
    chrome_trace = write_chrome_trace(trace.recordings, folder)
    how_to_open = f"Open {chrome_trace.name} in Perfetto or in chrome://tracing (Load)."
    numbers = {
        "model": trace.model.label,
        "rank_batch": trace.rank_batch,
        "sample_shape": list(trace.model.sample_shape),
        "command": command,
        "load_1min": list(trace.loads),
        "settings": {one.engine: options.get(one.engine, {}) for one in trace.recordings},
        "median_step_us": {one.engine: one.profiles[0].median_step_us for one in trace.recordings},
        "steps": [
            {**{name: value for name, value in asdict(step).items() if name != "phases"}, **asdict(step.phases)}
            | {"message_bytes": step.phases.message_bytes}
            for step in trace.steps
        ],
    }
    lines = ["# One step of each engine", "", f"`{about[0]}`", "", *(f"- {line}" for line in about[1:]), ""]
    lines += [" ".join(filter(None, [_EXPLANATION, warning])), ""]
    lines += markdown_table([{name: _format_cell(value) for name, value in row.items()} for row in rows])
    for figure in figures:
        lines += ["", f"![{figure.chart.title}]({figure.name}.png)", "", figure.caption]
    written = [
        chrome_trace,
        atomic.write_text(folder / "trace_steps.json", json.dumps(numbers, indent=2)),
        *(path for figure in figures for path in figure.chart.save(folder / figure.name)),
        atomic.write_text(folder / "trace.md", "\n".join([*lines, "", how_to_open, ""])),
    ]
    page = Page(f"{trace.model.label}: one step of each engine", scale)
    page.text(_EXPLANATION)
    if warning:
        page.text(warning, "warning")
    add_table(page, rows)
    page.charts([(figure.chart, figure.caption) for figure in figures], wide=True)
    page.heading("The whole trace")
    page.text(f"{how_to_open} It has every step of every rank.")
    page.link(chrome_trace.name, chrome_trace.name)
    page.footer(about)
    written.append(page.write(folder / "trace.html"))
    _remove_earlier_trace(folder, written)
    return written


def _remove_earlier_trace(folder: Path, written: Sequence[Path]) -> None:
    """Remove files that an earlier trace left here: its figures would be taken for this one's."""
    figures = [f"trace_{engine}{of}" for engine in parts.names("engines") for of in ("", "_timeline")]
    names = {"trace.json", "trace.json.gz", *(name + end for name in figures for end in (".png", ".svg", ".csv"))}
    for name in names - {path.name for path in written}:
        (folder / name).unlink(missing_ok=True)


def busy_warning(loads: Sequence[float]) -> str:
    """Return a warning about a trace that was recorded beside other work, or ''."""
    before = loads[0]  # the later ones have our own ranks in them
    if before < 1:
        return ""
    return (
        f"The machine was busy with other work (load {before:.1f} on {os.cpu_count()} cores before it began): "
        "a bar may be long because its thread had no core."
    )


@dataclass(frozen=True)
class TraceFigure:
    name: str  # of its files
    chart: Chart
    caption: str


def draw_step(step: TracedStep, scale: str) -> list[TraceFigure]:
    """Draw the streams of a step; for Horovod also the timeline of each tensor."""
    letter = {"horovod": "(a) ", "ddp": "(c) "}.get(step.engine, "")
    ranks = f"{step.ranks} rank" + ("s" if step.ranks > 1 else "")
    title = f"{letter}One step of {step.engine} on {ranks}, rank {step.rank}"
    streams = draw_streams(title, step.phases, scale)
    figures = [TraceFigure(f"trace_{step.engine}", streams, _CAPTIONS.get(step.engine, _CAPTIONS["fsdp"]))]
    if step.tensors:
        tensors = _draw_tensors(f"(b) Horovod's timeline of the same step, {ranks}", step, scale)
        figures.append(TraceFigure(f"trace_{step.engine}_timeline", tensors, _TIMELINE_CAPTION))
    return figures


def _draw_tensors(title: str, step: TracedStep, scale: str) -> Chart:
    tensors = list(dict.fromkeys(bar.label for bar in sorted(step.tensors, key=lambda bar: bar.start_us)))
    size_inches = (9.0, min(8.0, 1.7 + 0.17 * len(tensors)))
    # gradients come from top to bottom, so that the corner below is free
    chart = Chart(title, "ms", "", scale=scale, size_inches=size_inches, legend_place="lower left")
    rows = {tensor: len(tensors) - 1 - index for index, tensor in enumerate(tensors)}
    for stream, (name, colour) in _TENSOR_COLOURS.items():
        bars = [bar for bar in step.tensors if bar.stream == stream]
        draw_bars(chart, ((rows[bar.label], colour, bar) for bar in bars), height=0.8, legend=name)
        chart.rows += [
            {"series": name, "tensor": bar.label, "ms": bar.start_us / 1e3, "end ms": bar.end_us / 1e3} for bar in bars
        ]
    if len(tensors) <= _MOST_NAMED_ROWS:
        chart.axes.set_yticks(list(rows.values()), list(rows), fontsize=5.5)
    else:
        chart.axes.set_yticks([])
        chart.axes.set_ylabel(f"{len(tensors)} tensors")
    chart.axes.set_xlim(0, step.phases.step_us / 1e3)
    chart.axes.set_ylim(-0.6, len(tensors) - 0.4)
    last_us = max(bar.end_us for bar in step.phases.bars if bar.stream == "compute" and bar.label != "update")
    chart.axes.axvline(last_us / 1e3, color=FADED, linestyle=":", linewidth=1.2)
    return chart
