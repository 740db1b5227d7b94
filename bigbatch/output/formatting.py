"""Numbers, durations and tables as text, the same in every command, page and file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def format_number(value: float | None) -> str:
    """Three significant digits, commas between thousands; None is infinity."""
    if value is None:
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_range(low: float | None, high: float | None) -> str:
    """`52 to 98`; `at least 52` or `at most 98` where the other end is None."""
    if high is None:
        return "unbounded" if low is None else f"at least {format_number(low)}"
    return f"at most {format_number(high)}" if low is None else f"{format_number(low)} to {format_number(high)}"


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def format_duration(seconds: float | None) -> str:
    """Three significant digits in ms, s, min or h: `1.23 ms`, `45 s`, `12.5 min`, `3.5 h`."""
    if seconds is None:
        return "–"
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def format_value(value: object) -> str:
    """A setting's value in a label or a table: numbers and names as they are, anything else as JSON."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else json.dumps(value)


def flatten_fields(fields: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"optimizer": {"lr": .1}}` becomes `{"optimizer.lr": .1}`; lists stay as they are."""
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            found |= flatten_fields(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing_fields(runs: Iterable[dict[str, Any]]) -> list[str]:
    """The fields, flattened, that are not the same in all of them, in the order they come in."""
    flattened = [flatten_fields(run) for run in runs]
    names = dict.fromkeys(name for fields in flattened for name in fields)
    missing = object()
    return [
        name
        for name in names
        if any(fields.get(name, missing) != flattened[0].get(name, missing) for fields in flattened)
    ]


def format_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV with a header. Columns are those of all rows in order of appearance; None is an empty cell."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Collection[str] = (),
    title: str | None = None,
    min_width: int = 0,
) -> None:
    """Print a table without borders. Columns are aligned to the right, except those named in `left`."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console()
    (console if console.width >= min_width else Console(width=min_width)).print(table)
