"""Curves of everything in metrics.jsonl: one line per setting, the mean over seeds with its interval."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import inf

from bigbatch.artifacts.metrics import scalars
from bigbatch.output.figures import Band, Chart
from bigbatch.report.groups import RunGroup
from bigbatch.report.records import RunRecord
from bigbatch.sweeps import confidence_interval

MOST_LINES = 16  # in one chart; more cannot be told apart
_MOST_POINTS = 300  # of one line
_AXES = ("epoch", "samples", "step", "seconds")
_NOT_AVERAGED = ("lr", "global_batch", "kept")  # a mean over steps would be a value that no step had
_TITLES = {
    "train_loss": "Training loss",
    "epoch_train_loss": "Training loss over each epoch",
    "test_loss": "Test loss",
    "train_accuracy": "Training accuracy",
    "test_accuracy": "Test accuracy",
    "test_perplexity": "Test perplexity",
    "lr": "Learning rate",
    "global_batch": "Samples in the step",
    "kept": "Samples learned from in the step",
}
_NEVER_DRAWN = ("step", "epochs", "seed", "epoch")  # of probes: when they measured

Line = list[tuple[float, float]]  # (epoch, value)


def metric_charts(groups: Sequence[RunGroup], scale: str) -> list[tuple[Chart, str]]:
    """Loss, accuracy, learning rate, batch: each with a caption."""
    groups = groups[:MOST_LINES]
    names = _names(groups)
    known = [name for name in _TITLES if name in names]
    others = [name for name in names if name not in _TITLES and name not in _AXES and "/" not in name]
    if all(
        row.get("kept", 0) == row.get("global_batch", 0) for group in groups for r in group.records for row in r.rows
    ):
        known = [name for name in known if name != "kept"]
    return [_draw_over_epochs(name, _title(name, groups), groups, scale) for name in known + others]


def _title(name: str, groups: Sequence[RunGroup]) -> str:
    """Named by what the runs are judged on, where it is one thing."""
    title = _TITLES.get(name, name)
    judges = {record.judged_on for group in groups for record in group.records if record.run}
    if not name.startswith("test_") or len(judges) != 1:
        return title
    return f"{judges.pop().capitalize()} {name.removeprefix('test_').replace('_', ' ')}"


def probe_charts(groups: Sequence[RunGroup], scale: str) -> list[tuple[Chart, str]]:
    """What probes measured. Values of layers are drawn where there is one setting only, one line per layer."""
    groups = groups[:MOST_LINES]
    names = [name for name in _names(groups) if "/" in name and name.rpartition("/")[2] not in _NEVER_DRAWN]
    moving = [name for name in names if _varies(name, groups)]  # a constant is an option of the probe
    charts = [_draw_over_epochs(name, name, groups, scale) for name in moving if name.count("/") == 1]
    if len(groups) == 1:
        charts += _draw_by_layer([name for name in moving if name.count("/") > 1], groups[0], scale)
    return charts


def _names(groups: Iterable[RunGroup]) -> list[str]:
    rows = (row for group in groups for record in group.records for row in record.rows)
    return list(dict.fromkeys(name for row in rows for name in scalars(row)))


def _varies(name: str, groups: Iterable[RunGroup]) -> bool:
    values = {value for group in groups for record in group.records for _, value in metric_line(record, name)}
    return len(values) > 1


def metric_line(record: RunRecord, name: str) -> Line:
    """(epoch, value) of every row that has both; accuracies in per cent."""
    factor = 100.0 if name.endswith("accuracy") else 1.0
    numbers = (scalars(row) for row in record.rows)
    return [(found["epoch"], factor * found[name]) for found in numbers if name in found and "epoch" in found]


def downsample(line: Line, keep_values: bool = False) -> tuple[Line, int]:
    """At most 300 points: means of k neighbours, or every k-th; and k."""
    every = -(-len(line) // _MOST_POINTS) or 1
    if every == 1:
        return line, 1
    if keep_values:
        return line[::every], every
    pieces = [line[start : start + every] for start in range(0, len(line), every)]
    return [(piece[-1][0], statistics.fmean(value for _, value in piece)) for piece in pieces], every


def _draw_over_epochs(name: str, title: str, groups: Sequence[RunGroup], scale: str) -> tuple[Chart, str]:
    unit = f"{title} (%)" if name.endswith("accuracy") else title
    chart = Chart(title, "epoch", unit, scale=scale)
    longest = 1
    for group in groups:
        at_epoch: dict[float, list[float]] = {}
        for record in group.records:
            line, every = downsample(metric_line(record, name), name in _NOT_AVERAGED)
            longest = max(longest, every)
            for epoch, value in line:
                at_epoch.setdefault(epoch, []).append(value)
        if at_epoch:
            _add_mean_line(chart, group.label, at_epoch, (0.0, 100.0) if name.endswith("accuracy") else (-inf, inf))
    _limit_axis(chart, name)
    return chart, _caption(longest, name in _NOT_AVERAGED)


def _limit_axis(chart: Chart, name: str) -> None:
    """Limit the axis to possible values: the interval of few seeds may reach below 0 or above 100 %."""
    low, high = chart.axes.get_ylim()
    if name in _NOT_AVERAGED:
        chart.axes.set_ylim(bottom=0)
    elif name.endswith("accuracy"):
        chart.axes.set_ylim(max(low, -2), min(high, 102))
    elif name.endswith("loss"):
        chart.axes.set_ylim(bottom=max(low, 0))


def _add_mean_line(
    chart: Chart, label: str, at_epoch: dict[float, list[float]], bounds: tuple[float, float] = (-inf, inf)
) -> None:
    epochs = sorted(at_epoch)
    found = [confidence_interval(at_epoch[epoch], bounds) for epoch in epochs]
    counts = [len(at_epoch[epoch]) for epoch in epochs]
    chart.line(
        label,
        epochs,
        [mean for mean, _, _ in found],
        band=Band([low for _, low, _ in found], [high for _, _, high in found], counts),
    )


def _draw_by_layer(names: Sequence[str], group: RunGroup, scale: str) -> list[tuple[Chart, str]]:
    """`ratio/head.weight/ratio` is the line `head.weight` of `ratio: ratio`."""
    lines: dict[str, dict[str, str]] = {}
    for name in names:
        probe, *middle, last = name.split("/")
        if middle[0] == "layers" and len(middle) == 1:  # layers/<layer>: the layer is what comes last
            lines.setdefault(f"{probe} by layer", {})[last] = name
        else:
            lines.setdefault(f"{probe}: {last}", {})["/".join(middle).removeprefix("layers/")] = name
    charts = []
    for title, by_layer in lines.items():
        chart = Chart(title, "epoch", title, scale=scale)
        for layer, name in list(by_layer.items())[:MOST_LINES]:
            at_epoch: dict[float, list[float]] = {}
            for record in group.records:
                for epoch, value in downsample(metric_line(record, name))[0]:
                    at_epoch.setdefault(epoch, []).append(value)
            _add_mean_line(chart, layer, at_epoch)
        left_out = (
            f"{len(by_layer) - MOST_LINES} more layers are in metrics.jsonl." if len(by_layer) > MOST_LINES else ""
        )
        charts.append((chart, left_out))
    return charts


def _caption(every: int, keep_values: bool) -> str:
    if every == 1:
        return ""
    return f"One step in {every} is drawn." if keep_values else f"Each point is the mean of up to {every} steps."
