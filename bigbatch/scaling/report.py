"""What the commands print and write: tables on the terminal, JSON, CSV, pictures and one page."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch import whole
from bigbatch.scaling import pictures
from bigbatch.scaling.curve import TERMS, Point, Setting, configured
from bigbatch.scaling.finish import Choice, best
from bigbatch.scaling.machine import Machine, Nccl
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.published import Checked

WARNING = "Simulated: nobody ran this. How far it can be trusted is in the table of published points."


@dataclass(frozen=True)
class Simulation:
    """What `bigbatch scale simulate` found."""

    profile: Profile
    machine: Machine
    settings: Mapping[str, Setting]  # by engine
    curves: Mapping[str, Sequence[Point]]
    pictured_ranks: int
    cpu_seconds: float

    @property
    def scale(self) -> str:
        profile = self.profile
        return f"simulated: {profile.model}, batch {profile.rank_batch} a rank, machine {self.machine.name}"

    def rows(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in asdict(point).items() if name != "worth_us"}
            | {f"{term}_worth_us": point.worth_us[term] for term in TERMS}
            | {"bends": point.bends}
            for points in self.curves.values()
            for point in points
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "simulated": True,
            "model": self.profile.model,
            "rank_batch": self.profile.rank_batch,
            "times": self.profile.source,
            "one_rank_step_us": self.profile.compute_us,
            "gradient_bytes": self.profile.gradient_bytes,
            "machine": self.machine.model_dump(mode="json"),
            "engines": {name: setting.config.model_dump(mode="json") for name, setting in self.settings.items()},
            "points": self.rows(),
            "cpu_seconds": self.cpu_seconds,
        }


def show(found: Simulation) -> None:
    console = Console()
    profile = found.profile
    console.print(
        f"{profile.model}: {profile.gradient_bytes / 2**20:.1f} MiB of gradients, batch {profile.rank_batch} a rank, "
        f"{profile.compute_us / 1e3:.1f} ms a step alone ({profile.source}); machine {found.machine.name}",
        highlight=False,
    )
    for name, points in found.curves.items():
        table = Table(title=f"{name} (simulated)", title_justify="left", box=None, pad_edge=False)
        for column in ("ranks", "step ms", "exposed ms", "all-reduces", "efficiency", "9 of 10 steps", "most lost to"):
            table.add_column(column, justify="right", no_wrap=True)
        for point in points:
            table.add_row(
                f"{point.ranks:,}",
                f"{point.step_us / 1e3:.2f}",
                f"{point.exposed_us / 1e3:.2f}",
                str(point.all_reduces),
                f"{point.efficiency:.1%}",
                f"{point.low:.1%} to {point.high:.1%}",
                point.bends,
            )
        console.print(table)


def write(found: Simulation, checked: Sequence[Checked], folder: Path, command: str) -> list[Path]:
    """simulate.json, simulate.csv, the pictures of Fig. 8 and a page with all of it."""
    from bigbatch.page import Page

    curve = pictures.efficiency(found.curves, found.scale)
    steps = {
        name: pictures.one_step(name, setting.one_step(found.pictured_ranks), found.scale)
        for name, setting in found.settings.items()
    }
    worths = [pictures.worth(name, points, found.scale) for name, points in found.curves.items()]
    written = [
        whole.write_text(folder / "simulate.json", json.dumps(found.to_json(), indent=2)),
        whole.write_text(folder / "simulate.csv", csv_text(found.rows())),
        *curve.save(folder / "efficiency"),
    ]
    for name, chart in steps.items():
        written += chart.save(folder / f"step_{name}")

    page = Page(f"{found.profile.model} on {found.machine.name}: scaling, simulated", WARNING)
    page.strip(
        (f"{name} on {points[-1].ranks:,} ranks ({points[-1].low:.1%} to {points[-1].high:.1%})",
         f"{points[-1].efficiency:.1%}")
        for name, points in found.curves.items()
    )  # fmt: skip
    page.charts([(curve, "Weak scaling: the same batch a rank. The band holds nine of ten steps.")])
    page.heading("One step")
    page.text(
        "Compute stream above, communication below, as in Fig. 8 of Gahlot et al. 2020. Right of the dotted line "
        "the backward pass is over and communication is no longer hidden."
    )
    page.charts((chart, "What runs when, on the slowest rank.") for chart in steps.values())
    page.heading("What bends the curve")
    page.text("Each line: by how much a step would be shorter if that one thing cost nothing.")
    page.charts((chart, "") for chart in worths)
    _versions(page, found)
    _table(page, found)
    published(page, checked)
    page.footer(
        [command, f"times: {found.profile.source}", found.machine.about, f"{found.cpu_seconds:.1f} CPU seconds"]
    )
    return [*written, page.write(folder / "simulate.html")]


def _versions(page: Any, found: Simulation) -> None:
    if not isinstance(found.machine.links, Nccl):
        return
    page.heading("What depends on library versions")
    page.text(
        "NCCL before 2.4 had rings only, whose latency grows with the number of ranks and is paid by every "
        "all-reduce; Horovod sends many small ones. Without its response cache, Horovod's rank 0 reads a request of "
        "every rank for every tensor. Either one bends Horovod's curve near a thousand ranks; with trees and the cache "
        "neither is left. Both are shown as the libraries have them, neither is fitted to a curve."
    )
    ranks = [point.ranks for point in next(iter(found.curves.values()))]
    curves = {}
    for name, setting in found.settings.items():
        for label, algorithms, options in _VARIANTS[name]:
            machine = found.machine.with_settings({"links.algorithms": algorithms})
            config = configured(name, setting.config.model_dump() | options)
            varied = Setting(found.profile, name, config, machine)
            curves[f"{name}, {label}"] = [(count, varied.efficiency(count)) for count in ranks]
    page.charts([(pictures.versions(curves, found.scale), "")])


_VARIANTS: dict[str, tuple[tuple[str, str, dict[str, Any]], ...]] = {
    "ddp": (("ring or tree", "auto", {}), ("rings only", "ring", {})),
    "horovod": (
        ("ring or tree", "auto", {"cache_capacity": 1024}),
        ("rings only", "ring", {"cache_capacity": 1024}),
        ("ring or tree, no cache", "auto", {"cache_capacity": 0}),
    ),
}


def _table(page: Any, found: Simulation) -> None:
    page.heading("Numbers")
    page.table(
        ["engine", "ranks", "nodes", "step ms", "exposed ms", "all-reduces", "efficiency", "low", "high", "lost to"],
        (
            (p.engine, p.ranks, p.nodes, p.step_us / 1e3, p.exposed_us / 1e3, p.all_reduces, p.efficiency, p.low,
             p.high, p.bends)
            for points in found.curves.values()
            for p in points
        ),
    )  # fmt: skip


PUBLISHED_COLUMNS = ("what", "ranks", "published", "simulated", "error", "9 of 10 steps", "over versions", "lost to",
                     "verdict", "source", "assumed")  # fmt: skip


def published_rows(checked: Iterable[Checked]) -> list[list[Any]]:
    return [
        [
            one.published.what,
            one.published.ranks,
            f"{one.published.efficiency:.1%}",
            f"{one.efficiency:.1%}",
            f"{100 * one.error:+.1f} points",
            f"{one.low:.1%} to {one.high:.1%}",
            f"{one.least:.1%} to {one.most:.1%}" if one.published.model else "",
            one.bends,
            one.verdict,
            one.published.source,
            one.published.assumed or "layers and times not published: only the waiting for the slowest rank",
        ]
        for one in checked
    ]


def published(page: Any, checked: Sequence[Checked]) -> None:
    """The table of published points, and in words where the simulator fails."""
    page.heading("Against what others measured")
    page.text(fitted_words(checked))
    page.table(PUBLISHED_COLUMNS, published_rows(checked))
    for line in failures(checked):
        page.text(line, kind="warning")


def fitted_words(checked: Sequence[Checked]) -> str:
    fitted = next(one for one in checked if one.fitted)
    jitter = fitted.published.machine.jitter
    return (
        f"One number is fitted, on one point: the jitter of a rank, {jitter.fraction:.2%} of its step "
        f"({jitter.kind}), so that {fitted.published.what} on {fitted.published.ranks:,} ranks comes out as published. "
        "The other points test it; the same jitter is used on every machine."
    )


def failures(checked: Sequence[Checked]) -> list[str]:
    """One sentence for each point that it gets wrong."""
    return [
        f"It fails for {one.published.what} on {one.published.ranks:,} ranks: {one.efficiency:.1%} where "
        f"{one.published.efficiency:.1%} was measured ({one.bends} is what it loses most to)."
        for one in checked
        if one.verdict == "fails"
    ]


def show_published(checked: Sequence[Checked]) -> None:
    console = Console()
    console.print(fitted_words(checked), highlight=False)
    table = Table(box=None, pad_edge=False)
    shown = PUBLISHED_COLUMNS[:9]
    for column in shown:
        table.add_column(column, justify="left" if column in ("what", "verdict", "lost to") else "right")
    for row in published_rows(checked):
        table.add_row(*map(str, row[: len(shown)]))
    console.print(table)
    for line in failures(checked):
        console.print(line, highlight=False)


def write_published(checked: Sequence[Checked], folder: Path, command: str) -> list[Path]:
    """published.md and published.csv, with the command, the commit and the date."""
    from bigbatch.provenance import collect

    commit = collect()["commit"] or "unknown"
    rows = published_rows(checked)
    lines = [
        "# Published points",
        "",
        f"`{command}`, commit {commit[:12]}, {time.strftime('%Y-%m-%d', time.gmtime())}.",
        "Efficiencies are simulated, not run.",
        "",
        fitted_words(checked),
        "",
        "| " + " | ".join(PUBLISHED_COLUMNS) + " |",
        "|" + "---|" * len(PUBLISHED_COLUMNS),
        *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows),
        "",
        *failures(checked),
        "",
    ]
    table = csv_text([dict(zip(PUBLISHED_COLUMNS, row, strict=True)) for row in rows])
    return [
        whole.write_text(folder / "published.md", "\n".join(lines)),
        whole.write_text(folder / "published.csv", table),
    ]


def show_plan(choices: Sequence[Choice], words: str) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False)
    for column in ("ranks", "global batch", "a rank", "step ms", "samples", "time", "times faster", ""):
        table.add_column(column, justify="right", no_wrap=True)
    winner = best(choices)
    for choice in sorted(choices, key=lambda one: (one.ranks, one.way)):
        table.add_row(
            f"{choice.ranks:,}",
            f"{choice.global_batch:,}",
            f"{choice.rank_batch:,}",
            f"{choice.step_us / 1e3:.2f}",
            f"{choice.samples:.3g} x",
            f"{choice.time:.3g}",
            f"{1 / choice.time:.3g}",
            "<- best" if choice is winner else "",
        )
    console.print(table)
    console.print(words, highlight=False)


def plan_words(choices: Sequence[Choice], most_ranks: int) -> str:
    """The answer in a sentence or two."""
    winner = best(choices)
    words = (
        f"{winner.ranks:,} ranks at global batch {winner.global_batch:,} finish first: {1 / winner.time:.3g} times as "
        f"fast as one rank"
    )
    if winner.time_low != winner.time_high:
        words += f" ({1 / winner.time_high:.3g} to {1 / winner.time_low:.3g} over the noise scale's interval)"
    half = min((one for one in choices if one.time <= 2 * winner.time), key=lambda one: one.ranks)
    if half.ranks < winner.ranks:
        words += f"; {half.ranks:,} ranks at {half.global_batch:,} take at most twice as long"
    if winner.ranks == most_ranks:
        words += f". That is the most that was looked at: more than {most_ranks:,} may be better"
    return words + "."


def write_plan(
    choices: Sequence[Choice], words: str, about: Mapping[str, Any], folder: Path, command: str
) -> list[Path]:
    """plan.json, plan.csv and a page."""
    from bigbatch.page import Page

    rows = [asdict(choice) for choice in choices]
    scale = f"simulated: {about['model']}, machine {about['machine']}, noise scale {about['noise_scale']:,.0f}"
    chart = pictures.finish(choices, scale)
    page = Page(f"How many ranks for {about['model']}", WARNING)
    page.text(words)
    page.charts([(chart, "Lower is sooner. The band is the noise scale's interval, where it has one.")])
    columns = list(rows[0])
    page.table(columns, ([row[name] for name in columns] for row in rows), heat="time")
    page.footer([command, *(f"{name}: {value}" for name, value in about.items())])
    return [
        whole.write_text(folder / "plan.json", json.dumps({**about, "answer": words, "choices": rows}, indent=2)),
        whole.write_text(folder / "plan.csv", csv_text(rows)),
        *chart.save(folder / "finish"),
        page.write(folder / "plan.html"),
    ]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
