"""A measurement on the terminal: step times with their doubt, phases, efficiencies or why there are none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bigbatch.scaling.measured.measurement import Measurement
from bigbatch.scaling.measured.timings import Efficiency

TIMES = ("what", "best", "median", "CPU", "load", "simulated")
PHASES = ("what", "forward", "backward", "exposed", "overlapped", "negotiation", "update", "sends")
_BRIEFLY = {"overlapped": "overlap", "negotiation": "agree"}
EFFICIENCIES = ("scaling", "what", "alone ms", "ms", "efficiency")


def show(found: Measurement) -> None:
    console = Console()
    asked = found.asked
    console.print(
        f"{asked.subject.model}, sample {','.join(map(str, asked.subject.sample_shape))}, one thread a rank: "
        f"medians of {asked.plan.timed_steps} steps in {asked.plan.rounds} rounds, in ms",
        highlight=False,
    )
    console.print(_table(TIMES, time_rows(found)))
    # a terminal has no room for the sizes of what was sent
    brief = [[*row[:6], row[7].partition(":")[0]] for row in phase_rows(found)]
    console.print(_table([_BRIEFLY.get(name, name) for name in (*PHASES[:6], PHASES[7])], brief))
    if found.efficiencies:
        console.print(_table(EFFICIENCIES, [efficiency_cells(one) for one in found.efficiencies]))
    for words in dict.fromkeys(one.refused for one in found.efficiencies if one.refused):
        console.print(f"no efficiency: {words}", highlight=False)


def time_rows(found: Measurement) -> list[list[str]]:
    """Best and median over rounds; the simulator's step, with its error where that can be told."""
    simulated = {
        one.case: _ms(one.simulated_s) + ("" if found.refused else f" ({one.error:+.0%})") for one in found.predicted
    }
    return [
        [
            case.label,
            *map(_ms, (timing.best_s, timing.median_s, timing.best_cpu_s)),
            f"{timing.best.load_1min:.1f}",
            simulated.get(case, ""),
        ]
        for case, timing in found.timings.items()
    ]


def phase_rows(found: Measurement) -> list[list[str]]:
    rows = []
    for case, timing in found.timings.items():
        phases = timing.phases
        if phases is None:
            continue
        seconds = (phases.forward_s, phases.backward_s, phases.exposed_s, phases.overlapped_s, phases.negotiation_s)
        rows.append([case.label, *map(_ms, (*seconds, phases.update_s)), sends(phases.sent_bytes)])
    return rows


def sends(sizes: Sequence[int]) -> str:
    """How many messages, and how large: each where they are few, else their range."""
    if not sizes:
        return ""
    kib = [f"{size / 2**10:,.0f}" for size in sizes]
    said = ", ".join(kib) if len(kib) <= 4 else f"{min(sizes) / 2**10:,.0f} to {max(sizes) / 2**10:,.0f}"
    return f"{len(sizes)}: {said} KiB"


def efficiency_cells(one: Efficiency) -> list[str]:
    value = "refused" if one.value is None else f"{one.value:.1%}"
    return [one.comparison.scaling, one.comparison.ranks.label, _ms(one.alone.best_s), _ms(one.ranks.best_s), value]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def _table(columns: Sequence[str], rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in ("what", "scaling") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
