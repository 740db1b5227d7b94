"""What `bigbatch scale trace` prints and writes: the trace, the pictures, the numbers, one page."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch import parts
from bigbatch.artifacts import atomic, provenance
from bigbatch.scaling.trace import merge, panels, seen
from bigbatch.scaling.trace.merge import Recorded
from bigbatch.scaling.trace.seen import Seen

_NUMBERS = (
    ("step", "step_us"), ("forward", "forward_us"), ("backward", "backward_us"), ("exposed", "exposed_us"),
    ("update", "update_us"), ("overlapped", "overlapped_us"), ("negotiation", "negotiation_us"),
)  # fmt: skip
WORDS = (
    "All times in milliseconds, of the fastest of the traced steps on rank 0, under the profiler, which makes a step "
    "longer: compare the parts of a step, not the engines' speeds ('bigbatch scale measure' does that). Exposed is "
    "communication that no computation hides: from the rank's last own gradient to the sum over ranks. Overlapped is "
    "communication while the rank still computed. Negotiation is the time in which Horovod knew a gradient of one rank "
    "and waited for another's; most of it lies beside computation."
)


@dataclass(frozen=True)
class Traced:
    """What `bigbatch scale trace` found."""

    model: str
    rank_batch: int
    sample_shape: tuple[int, ...]
    recordings: Sequence[Recorded]
    loads: Sequence[float]  # of one minute, before each engine
    settings: dict[str, dict[str, Any]]  # of each engine

    @cached_property
    def steps(self) -> list[Seen]:
        return [seen.fastest(one.engine, len(one.profiles), one.profiles[0], one.timeline) for one in self.recordings]

    @property
    def scale(self) -> str:
        sample = " x ".join(map(str, self.sample_shape))
        return (
            f"measured under the profiler: {self.model}, samples of {sample}, batch {self.rank_batch} a rank, "
            f"{os.cpu_count()} cores"
        )


def _rows(steps: Sequence[Seen]) -> list[list[Any]]:
    return [
        [
            step.engine,
            step.ranks,
            *(_ms(getattr(step.phases, field)) for _, field in _NUMBERS),
            len(step.phases.message_bytes),
            _sizes(step.phases.message_bytes),
        ]
        for step in steps
    ]


def _ms(us: float | None) -> float | str:
    return "" if us is None else us / 1e3


_COLUMNS = ["engine", "ranks", *(name for name, _ in _NUMBERS), "messages", "MiB each"]


def _sizes(sizes: Sequence[int]) -> str:
    """Each one where they are few, else their range."""
    in_mib = [f"{size / 2**20:.3g}" for size in sizes]
    return " ".join(in_mib) if len(in_mib) <= 6 else f"{min(sizes) / 2**20:.3g} to {max(sizes) / 2**20:.3g}"


def show(traced: Traced) -> None:
    """A column for each engine: a terminal has room for few."""
    engines, *lines = zip(*([_COLUMNS, *_rows(traced.steps)]), strict=True)
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(engines):
        table.add_column(name if number else "", justify="right" if number else "left")
    for line in lines:
        table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line))
    console = Console()
    console.print(f"{traced.model}, batch {traced.rank_batch} a rank: ms of the fastest traced step", highlight=False)
    console.print(table)


def write(traced: Traced, folder: Path, command: str) -> list[Path]:
    """trace.json, trace_steps.json, a picture (SVG, PNG, CSV) of each panel, trace.md and trace.html."""
    from bigbatch.output.page import Page

    steps = traced.steps
    drawn = [panel for step in steps for panel in panels.panels(step, traced.scale)]
    trace = merge.write(traced.recordings, folder)
    written = [
        trace,
        atomic.write_text(folder / "trace_steps.json", json.dumps(_json(traced, steps, command), indent=2)),
    ]
    for panel in drawn:
        written += panel.chart.save(folder / panel.name)
    about = _about(traced, command)
    written.append(atomic.write_text(folder / "trace.md", _markdown(traced, drawn, about, trace)))

    page = Page(f"{traced.model}: one step of each engine", traced.scale)
    page.text(WORDS)
    if busy_words(traced.loads):
        page.text(busy_words(traced.loads), "warning")
    page.table(_COLUMNS, _rows(steps))
    page.charts([(panel.chart, panel.caption) for panel in drawn], wide=True)
    page.heading("The whole trace")
    page.text(f"{_opening(trace)} It has every step of every rank.")
    page.link(trace.name, trace.name)
    page.footer(about)
    written.append(page.write(folder / "trace.html"))
    _clear_earlier(folder, written)
    return written


def _clear_earlier(folder: Path, written: Sequence[Path]) -> None:
    """What an earlier trace left here under our names: its pictures would pass for this one's."""
    pictures = [f"trace_{engine}{of}" for engine in parts.names("engines") for of in ("", "_timeline")]
    names = {"trace.json", "trace.json.gz", *(name + end for name in pictures for end in (".png", ".svg", ".csv"))}
    for name in names - {path.name for path in written}:
        (folder / name).unlink(missing_ok=True)


def busy_words(loads: Sequence[float]) -> str:
    """What to know of a trace that was made beside other work; nothing where the machine was quiet."""
    before = loads[0]  # the later ones have our own ranks in them
    if before < 1:
        return ""
    return (
        f"The machine was busy with other work (load {before:.1f} on {os.cpu_count()} cores before it began): "
        "a bar may be long because its thread had no core."
    )


def _opening(trace: Path) -> str:
    return f"Open {trace.name} in Perfetto or in chrome://tracing (Load)."


def _about(traced: Traced, command: str) -> list[str]:
    loads = ", ".join(f"{load:.2f}" for load in traced.loads)
    commit = provenance.collect()["commit"]
    return [
        command,
        f"commit {commit[:12] if commit else 'unknown'}, {time.strftime('%Y-%m-%d', time.gmtime())}",
        f"load of one minute before each engine: {loads}; {os.cpu_count()} cores, {platform.machine()}",
        *(f"{name}: {options or 'its defaults'}" for name, options in traced.settings.items()),
    ]


def _json(traced: Traced, steps: Sequence[Seen], command: str) -> dict[str, Any]:
    return {
        "model": traced.model,
        "rank_batch": traced.rank_batch,
        "sample_shape": list(traced.sample_shape),
        "command": command,
        "load_1min": list(traced.loads),
        "settings": traced.settings,
        "median_step_us": {one.engine: seen.typical_step_us(one.profiles[0]) for one in traced.recordings},
        "steps": [_step_json(step) for step in steps],
    }


def _step_json(step: Seen) -> dict[str, Any]:
    fields = asdict(step)
    return fields | fields.pop("phases") | {"message_bytes": step.phases.message_bytes}


def _markdown(traced: Traced, drawn: Sequence[panels.Panel], about: Sequence[str], trace: Path) -> str:
    lines = ["# One step of each engine", "", f"`{about[0]}`", "", *(f"- {line}" for line in about[1:]), ""]
    lines += [" ".join(filter(None, [WORDS, busy_words(traced.loads)])), ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for row in _rows(traced.steps):
        lines.append(f"| {' | '.join(f'{cell:.2f}' if isinstance(cell, float) else str(cell) for cell in row)} |")
    for panel in drawn:
        lines += ["", f"![{panel.chart.title}]({panel.name}.png)", "", panel.caption]
    return "\n".join([*lines, "", _opening(trace), ""])
