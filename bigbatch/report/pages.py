"""The page about runs and sweeps: results, settings, curves, environment."""

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
from bigbatch.output.formatting import format_value
from bigbatch.output.page import Page
from bigbatch.report import sweep_results
from bigbatch.report.charts import MOST_LINES, metric_charts, probe_charts
from bigbatch.report.groups import RunGroup, group_by_setting
from bigbatch.report.papers import COLUMNS, compare_with_papers
from bigbatch.report.records import RunRecord, differing_fields, find_runs, flatten_fields, read_run
from bigbatch.sweeps import Sweep

_ALWAYS_SHOWN = ("global_batch", "optimizer.name", "optimizer.lr", "seed")


def report(paths: Iterable[Path], out: Path) -> Path:
    """Write one page about runs, sweeps and folders of runs, unfinished and damaged ones included."""
    sweeps, singles = find_runs(paths)
    labels = {row.folder: _label(row.label, sweep, sweeps) for sweep in sweeps for row in sweep.run_results()}
    of_sweeps = {path.resolve() for path in labels}
    records = [record for record in singles if record.path.resolve() not in of_sweeps]
    records += [read_run(path) for path in labels if path.exists()]
    if not records and not sweeps:
        raise Problem("there is nothing to report: name a run's folder or a sweep's")
    groups = group_by_setting(records, labels)
    scale = _scale(groups)
    page = Page(_title(sweeps, records), f"{_count_states(records)}; written {time.strftime('%Y-%m-%d %H:%M %Z')}")
    _add_key_numbers(page, groups)
    papers = compare_with_papers(groups)
    paper_numbers = list(dict.fromkeys(comparison.number for comparison in papers))
    for sweep in sweeps:
        sweep_results.add_sweep_config(page, sweep)
        sweep_results.add_sweep_results(page, sweep.analyze(), paper_numbers, scale)
    _add_common_settings(page, records)
    _add_run_table(page, records)
    if len(groups) < len(records):
        page.heading("By setting")
        page.text(
            "Runs that differ in the seed alone: mean and 95 % t-interval over those that are done, cut to 0-100 %."
        )
        page.table(["setting", "result", "runs"], [[g.label, g.format_result(), g.format_states()] for g in groups])
    if papers:
        page.heading("PaperComparison the papers")
        page.table(COLUMNS, [comparison.to_row() for comparison in papers])
    if len(groups) > MOST_LINES:
        page.text(
            f"Curves are drawn of the first {MOST_LINES} of {len(groups)} settings: name fewer folders for others."
        )
    _add_charts(page, groups, scale)
    _add_environments(page, records)
    page.footer([f"bigbatch {__version__}. metrics.jsonl in each run's folder is the source of this page."])
    return page.write(out)


def _label(label: str, sweep: Sweep, sweeps: Sequence[Sweep]) -> str:
    """With the name of the sweep where there are several, because settings of two sweeps are not one group."""
    return label if len(sweeps) == 1 else f"{sweep.folder.name}: {label}"


def _title(sweeps: Sequence[Sweep], records: Sequence[RunRecord]) -> str:
    names = [sweep.config.title or sweep.folder.name for sweep in sweeps] or [record.name for record in records]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _count_states(records: Sequence[RunRecord]) -> str:
    found_states = [record.state for record in records]
    counted = ", ".join(f"{found_states.count(state)} {state}" for state in dict.fromkeys(found_states))
    return f"{len(records)} run{'s' if len(records) != 1 else ''}: {counted}" if records else "no runs yet"


def _scale(groups: Sequence[RunGroup]) -> str:
    """What was run, for the corner of every chart."""
    counts = {len(group.records) for group in groups} or {0}
    seeds = f"n = {min(counts)}" if len(counts) == 1 else f"n = {min(counts)} to {max(counts)}"
    names = (flatten_fields(record.run).get("dataset.name") for group in groups for record in group.records)
    return ", ".join([*dict.fromkeys(name for name in names if isinstance(name, str)), seeds])


def _add_key_numbers(page: Page, groups: Sequence[RunGroup]) -> None:
    facts = []
    for record in (record for group in groups for record in group.records):
        if len(groups) == 1 and len(groups[0].records) == 1:
            facts = [("state", record.state), *_run_numbers(record)]
    if not facts:
        done = [group for group in groups if group.values]
        more_is_better = bool(done) and done[0].measure == "test_accuracy"
        ranked = sorted(done, key=lambda group: sum(group.values) / len(group.values), reverse=more_is_better)
        facts = [(f"best: {group.label}", group.format_result()) for group in ranked[:1]]
        facts += [(f"worst: {group.label}", group.format_result()) for group in ranked[1:][-1:]]
    page.key_numbers(facts)


def _run_numbers(record: RunRecord) -> list[tuple[str, str]]:
    facts = []
    if record.result:
        name, value = record.result
        shown = f"{100 * value:.2f} %" if name == "test_accuracy" else f"{value:.4g}"
        facts.append((name.replace("_", " "), shown))
    for name, unit in (
        ("train_loss", ""),
        ("epochs", ""),
        ("steps", ""),
        ("seconds", " s"),
        ("samples_per_second", ""),
    ):
        if isinstance(record.summary.get(name), int | float):
            facts.append((name.replace("_", " "), f"{record.summary[name]:,.4g}{unit}"))
    return facts


def _add_common_settings(page: Page, records: Sequence[RunRecord]) -> None:
    """The settings that all runs have in common. Those that differ are in the table."""
    known = [record for record in records if record.run]
    if not known:
        return
    page.heading("Common settings")
    varied = set(differing_fields([record.run for record in known]))
    fields = flatten_fields(known[0].run)
    common = {name: value for name, value in fields.items() if name not in varied and value is not None}
    page.code("\n".join(f"{name} = {format_value(value)}" for name, value in common.items()))
    commands = {_command(record) for record in known}
    if len(commands) == 1 and (command := commands.pop()):
        page.text("Started as:")
        page.code(command)


def _command(record: RunRecord) -> str:
    words = record.about.get("command")
    return " ".join(map(str, words)) if isinstance(words, list) else ""


def _add_run_table(page: Page, records: Sequence[RunRecord]) -> None:
    page.heading("Runs")
    varied = differing_fields([record.run for record in records if record.run])
    fields = list(dict.fromkeys([*_ALWAYS_SHOWN, *(name for name in varied if name != "name")]))
    measures = [name for name in ("test_accuracy", "test_perplexity", "test_loss") if _any_has(records, name)]
    columns = ["run", "state", *measures, "train_loss", "epochs", "steps", "seconds", "note", *fields]
    rows = [_run_row(record, fields, measures) for record in records]
    page.table(columns, rows)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([columns, *rows])
    page.csv_download("runs.csv", buffer.getvalue())


def _any_has(records: Sequence[RunRecord], name: str) -> bool:
    return any(name in (record.last_test | record.summary) for record in records)


def _run_row(record: RunRecord, fields: Sequence[str], measures: Sequence[str]) -> list[Any]:
    own = flatten_fields(record.run)
    last = record.rows[-1] if record.rows else {}
    known = record.last_test | {"epochs": last.get("epoch"), "steps": last.get("step")} | record.summary
    loss = known.get("train_loss", known.get("epoch_train_loss"))
    return [
        record.name,
        record.state,
        *(known.get(name) for name in measures),
        loss,
        *(known.get(name) for name in ("epochs", "steps", "seconds")),
        record.note,
        *(_to_cell(own.get(name)) for name in fields),
    ]


def _to_cell(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else json.dumps(value)


def _add_charts(page: Page, groups: Sequence[RunGroup], scale: str) -> None:
    drawn = [group for group in groups if any(record.rows for record in group.records)]
    if not drawn:
        return
    page.heading("Curves")
    page.charts(metric_charts(drawn, scale))
    probes = probe_charts(drawn, scale)
    if probes:
        page.heading("Probes")
        if len(drawn) > 1:
            page.text("Values of single layers are drawn in the report of one run.")
        page.charts(probes)


def _add_environments(page: Page, records: Sequence[RunRecord]) -> None:
    """Code, packages and machine, once for all runs that share them."""
    environments: dict[str, list[str]] = {}
    for record in records:
        if record.about:
            environments.setdefault(json.dumps(environment_fields(record)), []).append(record.name)
    if environments:
        page.heading("Environment")
    for text, names in environments.items():
        if len(environments) > 1:
            page.text(
                f"{len(names)} run{'s' if len(names) > 1 else ''}: {', '.join(names[:8])}{' ...' * (len(names) > 8)}"
            )
        page.table(["what", "value"], [[name, format_value(value)] for name, value in json.loads(text).items()])


def environment_fields(record: RunRecord) -> dict[str, Any]:
    """Code, packages, machine."""
    commit = record.about.get("commit")
    changed = " with uncommitted changes" if record.about.get("dirty_diff") else ""
    fields: dict[str, Any] = {"commit": f"{commit}{changed}" if commit else "not in a repository"}
    fields |= flatten_fields({name: record.about.get(name) or {} for name in ("packages", "hardware", "resolved")})
    return {name: value for name, value in fields.items() if value not in (None, [])}
