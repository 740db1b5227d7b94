"""The table of published points: on the terminal, on a page, as Markdown and CSV."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bigbatch.artifacts import atomic
from bigbatch.output.formatting import format_csv
from bigbatch.scaling.published import PublishedComparison

if TYPE_CHECKING:
    from bigbatch.output.page import Page

COLUMNS = ("what", "ranks", "published", "simulated", "error", "9 of 10 steps", "over versions", "lost to",
                     "verdict", "source", "assumed")  # fmt: skip


def rows(checked: Iterable[PublishedComparison]) -> list[list[Any]]:
    return [
        [
            one.published.what,
            one.published.ranks,
            f"{one.published.efficiency:.1%}",
            f"{one.efficiency:.1%}",
            f"{_points(one)} points",
            f"{one.low:.1%} to {one.high:.1%}",
            f"{one.least:.1%} to {one.most:.1%}" if one.published.model else "",
            one.bends,
            one.verdict,
            one.published.source,
            one.published.assumed,
        ]
        for one in checked
    ]


def add_to(page: Page, checked: Sequence[PublishedComparison]) -> None:
    """The table of published points, and in words where the simulator fails."""
    page.heading("Against what others measured")
    page.text(fitted_words(checked))
    page.table(COLUMNS, rows(checked))
    for line in failures(checked):
        page.text(line, kind="warning")


def fitted_words(checked: Sequence[PublishedComparison]) -> str:
    fitted = next(one for one in checked if one.fitted)
    jitter = fitted.published.machine.jitter
    return (
        f"One number is fitted, on one point: the jitter of a rank, {jitter.fraction:.2%} of its step "
        f"({jitter.kind}), so that {fitted.published.what} on {fitted.published.ranks:,} ranks comes out as published. "
        "The other points test it; the same jitter is used on every machine."
    )


def _points(one: PublishedComparison) -> str:
    return f"{round(100 * one.error, 1) + 0.0:+.1f}"  # no -0.0


def failures(checked: Sequence[PublishedComparison]) -> list[str]:
    """One sentence for each point that it gets wrong."""
    return [
        f"It fails for {one.published.what} on {one.published.ranks:,} ranks: {one.efficiency:.1%} where "
        f"{one.published.efficiency:.1%} was measured ({one.bends} is what it loses most to). {one.published.doubt}"
        for one in checked
        if one.verdict == "fails"
    ]


def show(checked: Sequence[PublishedComparison]) -> None:
    console = Console()
    console.print(fitted_words(checked), highlight=False)
    table = Table(box=None, pad_edge=False)
    for column in ("", "ranks", "paper", "ours", "error", "9 of 10", ""):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for one in checked:
        table.add_row(
            one.published.what,
            f"{one.published.ranks:,}",
            f"{one.published.efficiency:.1%}",
            f"{one.efficiency:.1%}",
            _points(one),
            f"{100 * one.low:.0f} to {100 * one.high:.0f}",
            one.verdict,
        )
    console.print(table)
    for line in failures(checked):
        console.print(line, highlight=False)


def write(checked: Sequence[PublishedComparison], folder: Path, command: str) -> list[Path]:
    """published.md and published.csv, with the command, the commit and the date."""
    from bigbatch.artifacts.provenance import collect

    commit = collect()["commit"] or "unknown"
    table = rows(checked)
    lines = [
        "# Published points",
        "",
        f"`{command}`, commit {commit[:12]}, {time.strftime('%Y-%m-%d', time.gmtime())}.",
        "Efficiencies are simulated, not run.",
        "",
        fitted_words(checked),
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *("| " + " | ".join(str(cell) for cell in row) + " |" for row in table),
        "",
        *(f"{line}\n" for line in failures(checked)),
    ]
    text = format_csv([dict(zip(COLUMNS, row, strict=True)) for row in table])
    return [
        atomic.write_text(folder / "published.md", "\n".join(lines)),
        atomic.write_text(folder / "published.csv", text),
    ]
