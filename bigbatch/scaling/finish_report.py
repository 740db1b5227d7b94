"""The answer of `bigbatch scale plan`: on the terminal, as JSON and CSV, as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch.artifacts import atomic
from bigbatch.output.formatting import format_csv
from bigbatch.scaling import pictures
from bigbatch.scaling.training_time import Choice, best

WARNING = "Simulated: nobody ran this. 'bigbatch scale published' shows how far the simulator can be trusted."
SMALL_BATCHES = (
    "Few samples a rank leave a device half idle. The simulator knows of that only a least time for each layer "
    "(kernel_us of the machine's device): measure a step at the batch a rank that it names before relying on it."
)


def show(choices: Sequence[Choice], words: str) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False)
    for column in ("ranks", "global batch", "a rank", "step ms", "samples", "time", "times faster", ""):
        table.add_column(column, justify="right", no_wrap=True)
    winner = best(choices)
    for choice in (choice for choice in choices if choice.way == "best"):
        table.add_row(
            f"{choice.ranks:,}",
            f"{choice.global_batch:,}",
            f"{choice.rank_batch:,}",
            f"{choice.step_us / 1e3:.2f}",
            f"{choice.samples:.3g} x",
            f"{choice.time:.3g}",
            faster(choice.time),
            "<- best" if choice is winner else "",
        )
    console.print(table)
    console.print(words, highlight=False)
    console.print(WARNING, highlight=False)
    if winner.rank_batch < max(choice.rank_batch for choice in choices):
        console.print(SMALL_BATCHES, highlight=False)


def words_for(choices: Sequence[Choice], most_ranks: int) -> str:
    """The answer in a sentence or two."""
    winner = best(choices)
    words = (
        f"{_ranks(winner)} at global batch {winner.global_batch:,} finish first: {faster(winner.time)} times as "
        "fast as one rank"
    )
    if winner.time_low != winner.time_high:
        words += f" ({faster(winner.time_high)} to {faster(winner.time_low)} over the noise scale's interval)"
    for longer, said in ((1.1, "10 % longer"), (2.0, "twice as long")):
        fewest = min((one for one in choices if one.time <= longer * winner.time), key=lambda one: one.ranks)
        if fewest.ranks < winner.ranks:
            words += f"; {_ranks(fewest)} at {fewest.global_batch:,} take at most {said}"
    if winner.ranks == most_ranks:
        words += f". More than {most_ranks:,} ranks were not looked at, and may be better"
    return words + "."


def write(choices: Sequence[Choice], words: str, about: Mapping[str, Any], folder: Path, command: str) -> list[Path]:
    """plan.json, plan.csv and a page."""
    from bigbatch.output.page import Page

    rows = [asdict(choice) for choice in choices]
    scale = f"simulated: {about['model']}, machine {about['machine']}, noise scale {about['noise_scale']:,.0f}"
    chart = pictures.finish(choices, scale)
    page = Page(f"How many ranks for {about['model']}", WARNING)
    page.text(words)
    page.charts([(chart, "Lower is sooner. The band is the noise scale's interval, where it has one.")])
    page.text(
        "The best batch for each number of ranks. Times and samples are over those of one rank at the batch of now."
    )
    page.table(
        ["ranks", "global batch", "a rank", "step ms", "samples", "time", "times faster"],
        (
            (c.ranks, c.global_batch, c.rank_batch, c.step_us / 1e3, c.samples, c.time, faster(c.time))
            for c in choices
            if c.way == "best"
        ),
    )
    page.text(SMALL_BATCHES, kind="warning")
    page.footer([command, *(f"{name}: {value}" for name, value in about.items())])
    return [
        atomic.write_text(folder / "plan.json", json.dumps({**about, "answer": words, "choices": rows}, indent=2)),
        atomic.write_text(folder / "plan.csv", format_csv(rows)),
        *chart.save(folder / "finish"),
        page.write(folder / "plan.html"),
    ]


def _ranks(choice: Choice) -> str:
    return "1 rank" if choice.ranks == 1 else f"{choice.ranks:,} ranks"


def faster(time: float) -> str:
    return f"{1 / time:,.0f}" if time < 0.01 else f"{1 / time:.3g}"
