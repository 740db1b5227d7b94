"""The pages: one about runs and sweeps (results, settings, curves, environment), one about two runs side by side."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bigbatch import __version__
from bigbatch.errors import Problem
from bigbatch.output.formatting import differing_fields, flatten_fields, format_value
from bigbatch.output.page import Page
from bigbatch.report.charts import MOST_LINES, metric_charts, probe_charts
from bigbatch.report.gaps import add_gaps
from bigbatch.report.papers import COLUMNS, compare_with_papers
from bigbatch.report.records import (
    MEASURES,
    RunGroup,
    RunRecord,
    count_states,
    find_runs,
    group_by_setting,
    read_run,
)
from bigbatch.report.sweep_results import add_sweep
from bigbatch.sweeps import format_metric

_ALWAYS_SHOWN = ("global_batch", "optimizer.name", "optimizer.lr", "seed")
_KEY_NUMBERS = {"train_loss": "", "epochs": "", "steps": "", "seconds": " s", "samples_per_second": ""}  # with units
_COMPARED = (
    *(*MEASURES, "train_loss", "epochs", "steps", "samples"),
    *("seconds", "samples_per_second", "peak_rss_mb", "ranks"),
)


def report(paths: Iterable[Path], out: Path) -> Path:
    """Write one page about runs, sweeps and folders of runs, unfinished and damaged ones included."""
    sweeps, singles = find_runs(paths)
    labels = {
        # settings of two sweeps are not one group
        row.folder: row.label if len(sweeps) == 1 else f"{sweep.folder.name}: {row.label}"
        for sweep in sweeps
        for row in sweep.run_results()
    }
    of_sweeps = {path.resolve() for path in labels}
    records = [record for record in singles if record.path.resolve() not in of_sweeps]
    records += [read_run(path) for path in labels if path.exists()]
    if not records and not sweeps:
        raise Problem("there is nothing to report: name a run's folder or a sweep's")
    groups = group_by_setting(records, labels)
    names = [sweep.config.title or sweep.folder.name for sweep in sweeps] or [record.name for record in records]
    title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    counts = f"{len(records)} run{'s' if len(records) != 1 else ''}: {count_states(records)}"
    page = Page(title, f"{counts if records else 'no runs yet'}; written {time.strftime('%Y-%m-%d %H:%M %Z')}")
    page.key_numbers(_list_key_numbers(groups))
    papers = list(compare_with_papers(groups))
    scale = _describe_scale(groups)
    for sweep in sweeps:
        add_sweep(page, sweep, dict.fromkeys(number for number, _ in papers), scale)
    _add_common_settings(page, [record for record in records if record.run])
    _add_run_table(page, records)
    if len(groups) < len(records):
        page.heading("By setting")
        page.text(
            "Runs that differ in the seed alone: mean and 95 % t-interval over those that are done, cut to 0-100 %."
        )
        rows = [[group.label, group.format_result(), count_states(group.records)] for group in groups]
        page.table(["setting", "result", "runs"], rows)
    add_gaps(page, groups)
    if papers:
        page.heading("Comparison with the papers")
        page.table(COLUMNS, [row for _, row in papers])
    if len(groups) > MOST_LINES:
        page.text(
            f"Curves are drawn of the first {MOST_LINES} of {len(groups)} settings: name fewer folders for others."
        )
    _add_curves(page, [group for group in groups if any(record.rows for record in group.records)], scale)
    _add_environments(page, records)
    page.footer([f"bigbatch {__version__}. metrics.jsonl in each run's folder is the source of this page."])
    return page.write(out)


def compare_runs(paths: list[Path], out: Path) -> Path:
    """Write the page about exactly two runs: what differs in their run.json, their results, their curves."""
    sweeps, records = find_runs(paths)
    if sweeps or len(records) != 2:
        what = f"{len(records)} runs" + (f" and {len(sweeps)} sweeps" if sweeps else "")
        raise Problem(f"--compare takes two runs, got {what}: name two folders like runs/<name>-<hash>")
    first, second = records
    names = [record.name if first.name != second.name else str(record.path) for record in records]
    page = Page(f"{names[0]} beside {names[1]}", f"{first.state} beside {second.state}")
    for name, record in zip(names, records, strict=True):
        if record.note:
            page.text(f"{name}: {record.note}", "warning")
    page.heading("Results")
    results: list[list[Any]] = [["state", first.state, second.state, ""]]
    for name in _COMPARED:
        a, b = (record.measures.get(name) for record in records)
        if isinstance(a, int | float) and isinstance(b, int | float):
            results.append([name, a, b, b - a])
        elif a is not None or b is not None:
            results.append([name, a, b, ""])
    page.table(["", *names, "difference"], results)
    page.heading("What differs in their run.json")
    # of the runs first, then of where they were run
    fields = [flatten_fields(record.run) | _environment_fields(record) for record in records]
    differences = [
        [name, *(format_value(own[name]) if name in own else "(missing)" for own in fields)]
        for name in differing_fields(fields)
    ]
    if differences:
        page.table(["field", *names], differences)
    else:
        page.text("Nothing: they are the same run, started twice.")
    _add_curves(page, [RunGroup(*pair) for pair in zip(names, [(first,), (second,)], strict=True)], "one run each")
    page.footer([f"bigbatch {__version__}", *(str(record.path) for record in records)])
    return page.write(out)


def _describe_scale(groups: Sequence[RunGroup]) -> str:
    """What was run, for the corner of every chart."""
    counts = {len(group.records) for group in groups} or {0}
    seeds = f"n = {min(counts)}" if len(counts) == 1 else f"n = {min(counts)} to {max(counts)}"
    names = (flatten_fields(record.run).get("dataset.name") for group in groups for record in group.records)
    return ", ".join([*dict.fromkeys(name for name in names if isinstance(name, str)), seeds])


def _list_key_numbers(groups: Sequence[RunGroup]) -> list[tuple[str, str]]:
    """Return the numbers of a single run, or the best and the worst of several."""
    if len(groups) == 1 and len(groups[0].records) == 1:
        (record,) = groups[0].records
        facts = [("state", record.state)]
        if record.result:
            name, value = record.result
            shown = format_metric(value, name) if name == "test_accuracy" else f"{value:.4g}"
            facts.append((name.replace("_", " "), shown))
        numbers = {name: record.summary.get(name) for name in _KEY_NUMBERS}
        return facts + [
            (name.replace("_", " "), f"{value:,.4g}{_KEY_NUMBERS[name]}")
            for name, value in numbers.items()
            if isinstance(value, int | float)
        ]
    done = [group for group in groups if group.values]
    more_is_better = bool(done) and done[0].measure == "test_accuracy"
    ranked = sorted(done, key=lambda group: sum(group.values) / len(group.values), reverse=more_is_better)
    best = [(f"best: {group.label}", group.format_result()) for group in ranked[:1]]
    return best + [(f"worst: {group.label}", group.format_result()) for group in ranked[1:][-1:]]


def _add_common_settings(page: Page, records: Sequence[RunRecord]) -> None:
    """Add the settings that all runs have in common. Those that differ are in the table."""
    if not records:
        return
    page.heading("Common settings")
    varied = set(differing_fields([record.run for record in records]))
    fields = flatten_fields(records[0].run)
    common = {name: value for name, value in fields.items() if name not in varied and value is not None}
    page.code("\n".join(f"{name} = {format_value(value)}" for name, value in common.items()))
    commands = [record.about.get("command") for record in records]
    if commands[0] and isinstance(commands[0], list) and commands.count(commands[0]) == len(commands):
        page.text("Started as:")
        page.code(" ".join(map(str, commands[0])))


def _add_run_table(page: Page, records: Sequence[RunRecord]) -> None:
    page.heading("Runs")
    varied = differing_fields([record.run for record in records if record.run])
    fields = list(dict.fromkeys([*_ALWAYS_SHOWN, *(name for name in varied if name != "name")]))
    measures = [name for name in MEASURES if any(name in record.measures for record in records)]
    columns = ["run", "state", *measures, "train_loss", "epochs", "steps", "seconds", "note", *fields]
    rows: list[list[Any]] = []
    for record in records:
        last = record.rows[-1] if record.rows else {}
        known = {"epochs": last.get("epoch"), "steps": last.get("step")} | record.measures
        known.setdefault("train_loss", known.get("epoch_train_loss"))
        values = [flatten_fields(record.run).get(name) for name in fields]
        rows.append(
            [
                record.name,
                record.state,
                *(known.get(name) for name in (*measures, "train_loss", "epochs", "steps", "seconds")),
                record.note,
                *(v if v is None or isinstance(v, int | float | str) else json.dumps(v) for v in values),
            ]
        )
    page.table(columns, rows)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    page.csv_download("runs.csv", buffer.getvalue())


def _add_curves(page: Page, groups: Sequence[RunGroup], scale: str) -> None:
    if not groups:
        return
    page.heading("Curves")
    page.charts(metric_charts(groups, scale))
    probes = probe_charts(groups, scale)
    if probes:
        page.heading("Probes")
        if len(groups) > 1:
            page.text("Values of single layers are drawn in the report of one run.")
        page.charts(probes)


def _add_environments(page: Page, records: Sequence[RunRecord]) -> None:
    """Add code, packages and machine, once for all runs that share them."""
    environments: dict[str, list[str]] = {}
    for record in records:
        if record.about:
            environments.setdefault(json.dumps(_environment_fields(record)), []).append(record.name)
    if environments:
        page.heading("Environment")
    for text, names in environments.items():
        if len(environments) > 1:
            page.text(
                f"{len(names)} run{'s' if len(names) > 1 else ''}: {', '.join(names[:8])}{' ...' * (len(names) > 8)}"
            )
        page.table(["what", "value"], [[name, format_value(value)] for name, value in json.loads(text).items()])


def _environment_fields(record: RunRecord) -> dict[str, Any]:
    commit = record.about.get("commit")
    changed = " with uncommitted changes" if record.about.get("dirty_diff") else ""
    fields: dict[str, Any] = {"commit": f"{commit}{changed}" if commit else "not in a repository"}
    fields |= flatten_fields({name: record.about.get(name) or {} for name in ("packages", "hardware", "resolved")})
    return {name: value for name, value in fields.items() if value not in (None, [])}
