"""The answer on one screen of 80 by 24."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bigbatch.advice import words

if TYPE_CHECKING:
    from bigbatch.advice.answer import Advice

_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}
_MOST_WARNINGS = 2  # the page has all


def show(advice: Advice) -> None:
    console = Console()
    colour = _COLOURS[advice.grade]
    console.print(f"[bold]{escape(advice.of)}: {words.verdict(advice)}[/bold]", highlight=False)
    console.print(
        f"[{colour}]grade {advice.grade}[/{colour}]: {escape('; '.join(advice.reasons))}",
        highlight=False,
        style="default",
    )
    facts = _table()
    facts.add_row("best time at B*", f"{words.number(advice.optimum)} (90 %: {words.span(advice.interval)})")
    facts.add_row("", words.near_best(advice))
    facts.add_row("noise scale φ", words.noise_scale(advice))
    facts.add_row("memory, data", f"{words.memory_cap(advice)}; {advice.data_cap:,} samples in all")
    facts.add_row("a step takes", words.step_time(advice))
    console.print(facts)
    expected = _table("against now", "now", f"at {advice.batch:,}", "factor (90 %)")
    for row in words.expectations(advice):
        expected.add_row(*row)
    console.print(expected)
    rules = _table(f"learning rate at {advice.batch:,}", "lr", "warm-up")
    for rule in words.rules(advice):
        rules.add_row(*rule)
    console.print(rules)
    if advice.verified:
        console.print(f"verified: {escape(advice.verified['said'])}", highlight=False)
    for warning in advice.warnings[:_MOST_WARNINGS]:
        console.print(f"note: {escape(warning)}", highlight=False)
    more = len(advice.warnings) - _MOST_WARNINGS
    if more > 0:
        console.print(f"and {more} more on the page", highlight=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=bool(columns), header_style="bold")
    for column in columns:
        table.add_column(column)
    return table
