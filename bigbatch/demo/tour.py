"""The demo from start to end: train on all cores, ask for advice, filter, then a table and a page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch.demo.advised import SECONDS, Advised, advised
from bigbatch.demo.filtered import Dropped, dropped
from bigbatch.demo.measured import Found, Measured, gap, verdict
from bigbatch.demo.stations import LEGW, LEGW_LARS, LINEAR, SEEDS, Station, stations
from bigbatch.demo.workers import Workers, available_cores, workers
from bigbatch.output.progress import show_progress, stage


def show(
    runs_dir: Path,
    out: Path,
    quiet: bool,
    *,
    seeds: Sequence[int] = SEEDS,
    epochs: float | None = None,
    advice_seconds: float = SECONDS,
) -> Found:
    """Everything; prints the table and the page's address. What was trained before is not trained again."""
    started = time.monotonic()
    with workers(available_cores()) as pool, show_progress(not quiet):
        found, advice, filtered = _worked(pool, stations(epochs), runs_dir, seeds, advice_seconds)
    from bigbatch.demo.web_page import write

    seconds = time.monotonic() - started
    page = write(out, found, advice, filtered, runs_dir, seconds)
    _print(found, advice, filtered, page, seconds)
    return found


def _worked(
    pool: Workers, planned: list[Station], runs_dir: Path, seeds: Sequence[int], advice_seconds: float
) -> tuple[Found, Advised, Dropped]:
    """Baselines take longest and come first; the filter waits for the first of them."""
    baseline = planned[0]
    first = baseline.with_seed(seeds[0])
    trainings = {(s.name, seed): pool.train([s.with_seed(seed)], runs_dir)[0] for s in planned for seed in seeds}
    waiting: dict[Future[Any], str] = {future: f"{name}, seed {seed}" for (name, seed), future in trainings.items()}
    advice = pool.do(advised, first, advice_seconds)
    waiting[advice] = "advise"
    with stage("demo", len(waiting) + 1) as advance:
        for done, future in enumerate(as_completed(waiting), start=1):
            future.result()
            advance(done, waiting[future])
        filtered = pool.do(dropped, runs_dir / first.folder_name).result()
        advance(len(waiting) + 1, "filter")
    found = {s.name: Measured(s, seeds, [trainings[s.name, seed].result() for seed in seeds]) for s in planned}
    return found, advice.result(), filtered


def _print(found: Found, advice: Advised, filtered: Dropped, page: Path, seconds: float) -> None:
    console = Console()
    table = Table("", "global batch", "peak lr", "test accuracy", "steps", title="8 x 8 digits, an LSTM of 64 units")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, measured in found.items():
        station_ = measured.station
        lr, steps = f"{station_.peak_lr:.3g}", f"{measured.summaries[0]['steps']:,}"
        table.add_row(name, f"{station_.global_batch:,}", lr, measured.described(), steps)
    console.print(table)
    say = [gap(found), *(verdict(found, name) for name in (LINEAR, LEGW, LEGW_LARS))]
    say += [
        f"advise: {advice.says[0]}",
        f"filter: {summary_of(filtered)}",
        f"{seconds:.0f} s. {page.resolve().as_uri()}",
    ]
    for line in say:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def summary_of(filtered: Dropped) -> str:
    most = sorted(filtered.by_class, key=lambda name: filtered.by_class[name], reverse=True)[:3]
    named = ", ".join(f"{filtered.by_class[name]} of class {name}" for name in most)
    return f"the network finds no place for {filtered.count} of {filtered.of:,} digits, most of them {named}"
