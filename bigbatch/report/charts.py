"""Curves of everything in metrics.jsonl: one line per setting, the mean over seeds with its interval."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from math import inf

from bigbatch.artifacts.metrics import scalars
from bigbatch.output.figures import Band, Chart
from bigbatch.report.records import RunGroup, RunRecord
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
    names = _list_metric_names(groups)
    rows = (row for group in groups for record in group.records for row in record.rows)
    if all(row.get("kept", 0) == row.get("global_batch", 0) for row in rows):
        names = [name for name in names if name != "kept"]
    known = [name for name in _TITLES if name in names]
    others = [name for name in names if name not in _TITLES and name not in _AXES and "/" not in name]
    judges = {record.judged_on for group in groups for record in group.records if record.run}
    charts = []
    for name in known + others:
        title = _TITLES.get(name, name)
        if name.startswith("test_") and len(judges) == 1:  # named by what the runs are judged on
            title = f"{next(iter(judges)).capitalize()} {name.removeprefix('test_').replace('_', ' ')}"
        charts.append(_draw_over_epochs(name, title, groups, scale))
    return charts


def probe_charts(groups: Sequence[RunGroup], scale: str) -> list[tuple[Chart, str]]:
    """What probes measured. Values of layers are drawn where there is one setting only, one line per layer."""
    groups = groups[:MOST_LINES]
    charts = []
    layers: dict[str, dict[str, str]] = {}  # names by title and layer
    for name in filter(lambda name: "/" in name, _list_metric_names(groups)):
        probe, *middle, last = name.split("/")
        lines = (metric_line(record, name) for group in groups for record in group.records)
        if last in _NEVER_DRAWN or len({value for line in lines for _, value in line}) < 2:
            continue  # a constant is an option of the probe
        if not middle:
            charts.append(_draw_over_epochs(name, name, groups, scale))
        elif middle == ["layers"]:  # layers/<layer>: the layer is what comes last
            layers.setdefault(f"{probe} by layer", {})[last] = name
        else:  # `ratio/head.weight/ratio` is the line `head.weight` of `ratio: ratio`
            layers.setdefault(f"{probe}: {last}", {})["/".join(middle).removeprefix("layers/")] = name
    if len(groups) > 1:
        return charts
    for title, by_layer in layers.items():
        chart = Chart(title, "epoch", title, scale=scale)
        for layer, name in list(by_layer.items())[:MOST_LINES]:
            _add_mean_line(chart, layer, groups[0].records, name)
        left_out = len(by_layer) - MOST_LINES
        charts.append((chart, f"{left_out} more layers are in metrics.jsonl." if left_out > 0 else ""))
    return charts


def _list_metric_names(groups: Iterable[RunGroup]) -> list[str]:
    rows = (row for group in groups for record in group.records for row in record.rows)
    return list(dict.fromkeys(name for row in rows for name in scalars(row)))


def _draw_over_epochs(name: str, title: str, groups: Sequence[RunGroup], scale: str) -> tuple[Chart, str]:
    is_accuracy, keeps_values = name.endswith("accuracy"), name in _NOT_AVERAGED
    chart = Chart(title, "epoch", f"{title} (%)" if is_accuracy else title, scale=scale)
    every = max(_add_mean_line(chart, group.label, group.records, name) for group in groups)
    # only possible values: the interval of few seeds may reach below 0 or above 100 %
    low, high = chart.axes.get_ylim()
    if keeps_values:
        chart.axes.set_ylim(bottom=0)
    elif is_accuracy:
        chart.axes.set_ylim(max(low, -2), min(high, 102))
    elif name.endswith("loss"):
        chart.axes.set_ylim(bottom=max(low, 0))
    caption = f"One step in {every} is drawn." if keeps_values else f"Each point is the mean of up to {every} steps."
    return chart, caption if every > 1 else ""


def _add_mean_line(chart: Chart, label: str, records: Iterable[RunRecord], name: str) -> int:
    """Draw the mean over runs with its interval, and return how many steps a point stands for."""
    at_epoch: dict[float, list[float]] = {}
    most_steps = 1
    for record in records:
        line, every = downsample(metric_line(record, name), name in _NOT_AVERAGED)
        most_steps = max(most_steps, every)
        for epoch, value in line:
            at_epoch.setdefault(epoch, []).append(value)
    if at_epoch:
        epochs = sorted(at_epoch)
        bounds = (0.0, 100.0) if name.endswith("accuracy") else (-inf, inf)
        means, lows, highs = zip(*(confidence_interval(at_epoch[epoch], bounds) for epoch in epochs), strict=True)
        chart.line(label, epochs, means, band=Band(lows, highs, [len(at_epoch[epoch]) for epoch in epochs]))
    return most_steps


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
