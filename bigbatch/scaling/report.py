"""What the commands print and write: tables on the terminal, JSON, CSV, pictures and one page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bigbatch.artifacts import atomic
from bigbatch.output.formatting import format_csv
from bigbatch.scaling import pictures, published_report
from bigbatch.scaling.machine import Machine, NcclLinks
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.published import PublishedComparison
from bigbatch.scaling.simulation import TERMS, Point, StepSimulator, configure_engine

if TYPE_CHECKING:
    from bigbatch.output.figures import Chart
    from bigbatch.output.page import Page

WARNING = "Simulated: nobody ran this. How far it can be trusted is in the table of published points."


@dataclass(frozen=True)
class Simulation:
    """What `bigbatch scale simulate` found."""

    profile: Profile
    machine: Machine
    settings: Mapping[str, StepSimulator]  # by engine
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
        for column in ("ranks", "step ms", "exposed", "sends", "efficiency", "9 of 10 steps", "lost to"):
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


def write(found: Simulation, checked: Sequence[PublishedComparison], folder: Path, command: str) -> list[Path]:
    """simulate.json, simulate.csv, the pictures of Fig. 8 and a page with all of it."""
    from bigbatch.output.page import Page

    curve = pictures.efficiency(found.curves, found.scale)
    steps = {
        name: pictures.one_step(name, setting.one_step(found.pictured_ranks), found.scale)
        for name, setting in found.settings.items()
    }
    versions = _versions(found)
    worths = [pictures.worth(name, points, found.scale) for name, points in found.curves.items()]
    written = [
        atomic.write_text(folder / "simulate.json", json.dumps(found.to_json(), indent=2)),
        atomic.write_text(folder / "simulate.csv", format_csv(found.rows())),
        *curve.save(folder / "efficiency"),
    ]
    for name, chart in steps.items():
        written += chart.save(folder / f"step_{name}")
    for chart, _ in versions:
        written += chart.save(folder / "versions")

    page = Page(f"{found.profile.model} on {found.machine.name}: scaling, simulated", WARNING)
    page.strip(
        (f"{name} on {points[-1].ranks:,} ranks ({points[-1].low:.1%} to {points[-1].high:.1%})",
         f"{points[-1].efficiency:.1%}")
        for name, points in found.curves.items()
    )  # fmt: skip
    page.charts([(curve, "Weak scaling: the same batch a rank. The band holds nine of ten steps."), *versions])
    if isinstance(found.machine.links, NcclLinks):
        page.text(_VERSIONS)
    page.heading("One step")
    page.text(
        "Compute stream above, communication below, as in Fig. 8 of Gahlot et al. 2020. Right of the dotted line "
        "the backward pass is over and communication is no longer hidden."
    )
    page.charts(((chart, "What runs when, on the slowest rank.") for chart in steps.values()), wide=True)
    page.heading("What bends the curve")
    page.text("Each line: by how much a step would be shorter if that one thing cost nothing.")
    page.charts((chart, "") for chart in worths)
    _table(page, found)
    published_report.add_to(page, checked)
    page.footer(
        [command, f"times: {found.profile.source}", found.machine.about, f"{found.cpu_seconds:.1f} CPU seconds"]
    )
    return [*written, page.write(folder / "simulate.html")]


def _versions(found: Simulation) -> list[tuple[Chart, str]]:
    if not isinstance(found.machine.links, NcclLinks):
        return []
    ranks = [point.ranks for point in next(iter(found.curves.values()))]
    curves = {}
    for name, setting in found.settings.items():
        for label, algorithms, options in _VARIANTS[name]:
            machine = found.machine.with_settings({"links.algorithms": algorithms})
            config = configure_engine(name, setting.config.model_dump() | options)
            varied = StepSimulator(found.profile, name, config, machine)
            curves[f"{name}, {label}"] = [(count, varied.efficiency(count)) for count in ranks]
    return [(pictures.versions(curves, found.scale), "The same training with other versions of the libraries.")]


_VERSIONS = (
    "The outcome depends on library versions. NCCL before 2.4 had rings only, whose latency grows with the number of "
    "ranks and is paid by every all-reduce, and Horovod sends many small ones. Without its response cache, Horovod's "
    "rank 0 reads a request of every rank for every tensor. Either one is enough to bend Horovod's curve; with trees "
    "and the cache neither is left. Both are as the libraries have them; neither is fitted to a curve."
)
_VARIANTS: dict[str, tuple[tuple[str, str, dict[str, Any]], ...]] = {
    "ddp": (("ring or tree", "auto", {}), ("rings only", "ring", {})),
    "horovod": (
        ("ring or tree", "auto", {"cache_capacity": 1024}),
        ("rings only", "ring", {"cache_capacity": 1024}),
        ("ring or tree, no cache", "auto", {"cache_capacity": 0}),
    ),
}


def _table(page: Page, found: Simulation) -> None:
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
