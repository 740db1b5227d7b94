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
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.output.figures import COLOURS, FADED, Chart
from bigbatch.output.page import Page
from bigbatch.scaling.report import (
    TableRow,
    add_table,
    describe_commit,
    draw_bars,
    draw_streams,
    phase_cells,
    print_table,
    print_text,
)
from bigbatch.scaling.tracing.chrome_trace import write_chrome_trace
from bigbatch.scaling.tracing.trace import Trace, TracedStep

_EXPLANATION = (
    "All times in milliseconds, of the fastest of the traced steps on rank 0, under the profiler, which makes a step "
    "longer: compare the parts of a step, not the engines' speeds ('bigbatch scale measure' does that). Exposed is "
    "communication that no computation hides: from the rank's last own gradient to the sum over ranks. Overlap is "
    "communication while the rank still computed. Agree is the time in which Horovod knew a gradient of one rank "
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
    print_text(f"{trace.model.label}, batch {trace.rank_batch} per rank: ms of the fastest traced step")
    rows = _step_table(trace.steps)
    print_table(
        [{"": name, **{str(row["engine"]): row[name] for row in rows}} for name in list(rows[0])[1:]], left=("",)
    )


def _step_table(steps: Sequence[TracedStep]) -> list[TableRow]:
    return [
        {"engine": step.engine, "ranks": step.ranks, "step": step.phases.step_us / 1e3, **phase_cells(step.phases)}
        for step in steps
    ]


def write_report(trace: Trace, folder: Path, command: str) -> list[Path]:
    """Write trace.json, trace_steps.json, figures (SVG, PNG, CSV) and, as the last, trace.html."""
    sample = " x ".join(map(str, trace.model.sample_shape))
    scale = (
        f"measured under the profiler: {trace.model.label}, samples of {sample}, batch {trace.rank_batch} per rank, "
        f"{os.cpu_count()} cores"
    )
    figures = {name: figure for step in trace.steps for name, figure in draw_step(step, scale).items()}
    options = {one.engine: dict(trace.model.engine_options.get(one.engine, {})) for one in trace.recordings}
    chrome_trace = write_chrome_trace(trace.recordings, folder)
    page = Page(f"{trace.model.label}: one step of each engine", scale)
    page.text(_EXPLANATION)
    if warning := busy_warning(trace.loads):
        page.text(warning, "warning")
    add_table(page, _step_table(trace.steps))
    page.charts(figures.values(), wide=True)
    page.heading("The whole trace")
    page.text(f"Open {chrome_trace.name} in Perfetto or in chrome://tracing (Load). It has every step of every rank.")
    page.link(chrome_trace.name, chrome_trace.name)
    page.footer(
        [
            command,
            describe_commit(),
            f"load of one minute before each engine: {', '.join(f'{load:.2f}' for load in trace.loads)}; "
            f"{os.cpu_count()} cores, {platform.machine()}",
            *(f"{engine}: {settings or 'its defaults'}" for engine, settings in options.items()),
        ]
    )
    numbers = {
        "model": trace.model.label,
        "rank_batch": trace.rank_batch,
        "sample_shape": list(trace.model.sample_shape),
        "command": command,
        "load_1min": list(trace.loads),
        "settings": options,
        "median_step_us": {
            one.engine: median(step.step_us for step in one.profiles[0].steps) for one in trace.recordings
        },
        "steps": [asdict(step) | {"message_bytes": step.phases.message_bytes} for step in trace.steps],
    }
    written = [
        chrome_trace,
        atomic.write_text(folder / "trace_steps.json", json.dumps(numbers, indent=2)),
        *(path for name, (chart, _) in figures.items() for path in chart.save(folder / name)),
        page.write(folder / "trace.html"),
    ]
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


def draw_step(step: TracedStep, scale: str) -> dict[str, tuple[Chart, str]]:
    """Draw the streams of a step; for Horovod also the timeline of each tensor. Return charts and captions by file."""
    letter = {"horovod": "(a) ", "ddp": "(c) "}.get(step.engine, "")
    ranks = f"{step.ranks} rank" + ("s" if step.ranks > 1 else "")
    streams = draw_streams(f"{letter}One step of {step.engine} on {ranks}, rank 0", step.phases, scale)
    figures = {f"trace_{step.engine}": (streams, _CAPTIONS.get(step.engine, _CAPTIONS["fsdp"]))}
    if step.tensors:
        tensors = _draw_tensors(f"(b) Horovod's timeline of the same step, {ranks}", step, scale)
        figures[f"trace_{step.engine}_timeline"] = (tensors, _TIMELINE_CAPTION)
    return figures


def _draw_tensors(title: str, step: TracedStep, scale: str) -> Chart:
    tensors = list(dict.fromkeys(bar.label for bar in sorted(step.tensors, key=lambda bar: bar.start_us)))
    size_inches = (9.0, min(8.0, 1.7 + 0.17 * len(tensors)))
    # gradients come from top to bottom, so that the corner below is free
    chart = Chart(title, "ms", "", scale=scale, size_inches=size_inches, legend_place="lower left")
    rows = {tensor: len(tensors) - 1 - index for index, tensor in enumerate(tensors)}
    for stream, (name, colour) in _TENSOR_COLOURS.items():
        bars = [bar for bar in step.tensors if bar.stream == stream]
        draw_bars(chart, bars, [rows[bar.label] for bar in bars], [colour] * len(bars), height=0.8, label=name)
        chart.rows += [
            {"series": name, "tensor": bar.label, "ms": bar.start_us / 1e3, "end ms": bar.end_us / 1e3} for bar in bars
        ]
    if len(tensors) <= _MOST_NAMED_ROWS:
        chart.axes.set_yticks(list(rows.values()), list(rows), fontsize=5.5)
    else:
        chart.axes.set_yticks([])
        chart.axes.set_ylabel(f"{len(tensors)} tensors")
    chart.axes.set(xlim=(0, step.phases.step_us / 1e3), ylim=(-0.6, len(tensors) - 0.4))
    computed_us = step.phases.forward_us + step.phases.backward_us
    chart.axes.axvline(computed_us / 1e3, color=FADED, linestyle=":", linewidth=1.2)
    return chart
