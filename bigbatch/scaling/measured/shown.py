"""A measurement on the terminal: step times with their doubt, phases, efficiencies or why there are none."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch.scaling.measured.measurement import Measurement
from bigbatch.scaling.measured.timings import Efficiency, Timing

TIMES = ("what", "ms best", "ms median", "CPU ms", "load", "forward", "backward", "exposed", "overlapped", "sends")
EFFICIENCIES = ("scaling", "what", "alone ms", "ms", "efficiency")


def show(found: Measurement) -> None:
    console = Console()
    asked = found.asked
    console.print(
        f"{asked.subject.model}, sample {','.join(map(str, asked.subject.sample_shape))}, one thread a rank: "
        f"medians of {asked.plan.timed_steps} steps in {asked.plan.rounds} rounds, in ms",
        highlight=False,
    )
    console.print(_table(TIMES, [time_cells(timing) for timing in found.timings.values()]))
    if found.efficiencies:
        console.print(_table(EFFICIENCIES, [efficiency_cells(one) for one in found.efficiencies]))
    for words in dict.fromkeys(one.refused for one in found.efficiencies if one.refused):
        console.print(f"no efficiency: {words}", highlight=False)


def time_cells(timing: Timing) -> list[str]:
    phases = timing.phases
    parts: list[Any] = ["", "", "", "", ""]
    if phases:
        seconds = (phases.forward_s, phases.backward_s, phases.exposed_s, phases.overlapped_s)
        sizes = ", ".join(f"{size / 2**20:.2f}" for size in phases.sent_bytes[:4])
        more = ", ..." if len(phases.sent_bytes) > 4 else ""
        parts = [*map(_ms, seconds), f"{len(phases.sent_bytes)}: {sizes}{more} MiB" if sizes else ""]
    times = (timing.best_s, timing.median_s, timing.best_cpu_s)
    return [timing.case.label, *map(_ms, times), f"{timing.best.load_1min:.1f}", *parts]


def efficiency_cells(one: Efficiency) -> list[str]:
    value = "refused" if one.value is None else f"{one.value:.1%}"
    return [one.comparison.scaling, one.comparison.ranks.label, _ms(one.alone.best_s), _ms(one.ranks.best_s), value]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("what", "scaling", "sends") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
