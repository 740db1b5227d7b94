"""What a filter did, for a person to read: the rows of the paper's Table I, and class by class."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def show(manifest: dict[str, Any]) -> None:
    """Network, kept, dropped; then the same for each class, with its eps where it has one."""
    info, counts, samples = manifest["info"], manifest["counts"], manifest["dataset"]["samples"]
    eps, knees = info.get("eps", {}), info.get("k_distance_knee", {})
    made_by = info.get("network", {}).get("network") or manifest["filter"]["name"]
    table = Table("class", title=f"{manifest['dataset']['config']['name']}: {manifest['filter']['name']} filter")
    for column in ("kept", "dropped", "dropped %", *(("eps", "knee (a hint)") if eps else ())):
        table.add_column(column, justify="right")
    for name, row in counts["by_class"].items():
        extra = (f"{eps[name]:.3f}", f"{knees[name]:.3f}") if name in eps else ()
        table.add_row(name, *_numbers(row["kept"], row["dropped"]), *extra)
    table.add_section()
    table.add_row("all", *_numbers(counts["kept"], counts["dropped"]))
    console = Console()
    console.print(table)
    percent = 100 * counts["kept"] / samples
    console.print(
        f"{made_by}: {percent:.2f} % or {counts['kept']:,} samples kept ({100 - percent:.2f} % dropped)",
        highlight=False,
        soft_wrap=True,
    )
    for note in info.get("notes", []):
        console.print(f"note: {note}", style="dim", highlight=False, soft_wrap=True)


def _numbers(kept: int, dropped: int) -> tuple[str, str, str]:
    share = 100 * dropped / (kept + dropped) if kept + dropped else 0.0
    return f"{kept:,}", f"{dropped:,}", f"{share:.2f}"
