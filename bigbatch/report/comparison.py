"""Two runs side by side: what differs in their run.json, their results, their curves in the same charts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bigbatch import __version__
from bigbatch.errors import Problem
from bigbatch.output.formatting import format_value
from bigbatch.output.page import Page
from bigbatch.report.charts import metric_charts, probe_charts
from bigbatch.report.groups import RunGroup
from bigbatch.report.pages import environment_fields
from bigbatch.report.records import RunRecord, differing_fields, find_runs, flatten_fields

_RESULTS = (
    *("test_accuracy", "test_perplexity", "test_loss", "train_loss", "epochs", "steps", "samples"),
    *("seconds", "samples_per_second", "peak_rss_mb", "ranks"),
)


def compare_runs(paths: list[Path], out: Path) -> Path:
    """Write the page about exactly two runs."""
    sweeps, records = find_runs(paths)
    if sweeps or len(records) != 2:
        what = f"{len(records)} runs" + (f" and {len(sweeps)} sweeps" if sweeps else "")
        raise Problem(f"--compare takes two runs, got {what}: name two folders like runs/<name>-<hash>")
    first, second = records
    names = _names(first, second)
    page = Page(f"{names[0]} beside {names[1]}", f"{first.state} beside {second.state}")
    for name, record in zip(names, records, strict=True):
        if record.note:
            page.text(f"{name}: {record.note}", "warning")
    page.heading("Results")
    page.table(["", *names, "difference"], _result_rows(first, second))
    page.heading("What differs in their run.json")
    differences = _difference_rows(first, second)
    if differences:
        page.table(["field", *names], differences)
    else:
        page.text("Nothing: they are the same run, started twice.")
    page.heading("Curves")
    groups = [RunGroup(name, (record,)) for name, record in zip(names, records, strict=True)]
    page.charts(metric_charts(groups, "one run each"))
    probes = probe_charts(groups, "one run each")
    if probes:
        page.heading("Probes")
        page.charts(probes)
    page.footer([f"bigbatch {__version__}", *(str(record.path) for record in records)])
    return page.write(out)


def _names(first: RunRecord, second: RunRecord) -> tuple[str, str]:
    """The names of the folders, or their paths where the names are equal."""
    if first.name != second.name:
        return first.name, second.name
    return str(first.path), str(second.path)


def _result_rows(first: RunRecord, second: RunRecord) -> list[list[Any]]:
    one, other = (record.last_test | record.summary for record in (first, second))
    rows: list[list[Any]] = [["state", first.state, second.state, ""]]
    for name in _RESULTS:
        a, b = one.get(name), other.get(name)
        if isinstance(a, int | float) and isinstance(b, int | float):
            rows.append([name, a, b, b - a])
        elif a is not None or b is not None:
            rows.append([name, a, b, ""])
    return rows


def _difference_rows(first: RunRecord, second: RunRecord) -> list[list[str]]:
    """Of the runs first, then of where they were run."""
    one, other = (flatten_fields(record.run) | environment_fields(record) for record in (first, second))
    return [[name, _format_field(one, name), _format_field(other, name)] for name in differing_fields([one, other])]


def _format_field(fields: dict[str, Any], name: str) -> str:
    return format_value(fields[name]) if name in fields else "(missing)"
