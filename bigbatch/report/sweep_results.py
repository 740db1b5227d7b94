"""The results of a sweep: accuracy against the batch, the critical batch, the batch that each learning rate prefers."""

from __future__ import annotations

from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_value
from bigbatch.output.page import Page
from bigbatch.recipes import PaperNumber
from bigbatch.sweeps import BatchCurve, Sweep, SweepResults, format_metric


def add_sweep_config(page: Page, sweep: Sweep) -> None:
    """Add the grids, variants and seeds of a sweep."""
    config = sweep.config
    page.heading(f"Sweep: {config.title or sweep.folder.name}")
    lines = [f"{name} = {', '.join(map(format_value, values))}" for name, values in config.grids.items()]
    lines += [
        f"{name}: {' '.join(f'{field}={format_value(value)}' for field, value in changes.items()) or 'unchanged'}"
        for name, changes in config.variants.items()
    ]
    lines.append(f"{config.seeds} seed{'s' if config.seeds != 1 else ''}, {len(sweep.points)} settings and seeds")
    if config.command:
        lines.append(" ".join(config.command))
    page.code("\n".join(lines))


def add_sweep_results(page: Page, found: SweepResults, numbers: list[PaperNumber], scale: str) -> None:
    """Add the results, with warnings first where the best value lies at the edge of a grid."""
    for sentence in (*found.edge_warnings, *found.notes):
        page.text(sentence, "warning" if sentence in found.edge_warnings else "")
    for curve in found.curves:
        page.text(f"{curve.label}: {curve.note}")
    for preferred in found.preferred:
        page.text(f"{preferred.label}: {preferred.note}", "warning" if preferred.edge else "")
    page.table(
        ["setting", "global batch", "lr", found.metric_label, "done", "diverged", "failed", "unfinished"],
        [
            [g.label, g.global_batch, g.lr, g.describe(found.metric), g.n, g.diverged, g.failed, g.unfinished]
            for g in found.groups
        ],
    )
    charts = []
    if found.curves:
        charts.append((accuracy_chart(found, numbers, scale), _describe_critical_batches(found.curves)))
    if len(found.preferred) > 1:
        charts.append((preferred_batch_chart(found, scale), "The batch of the best mean; the band is over seeds."))
    page.charts(charts)


def accuracy_chart(found: SweepResults, numbers: list[PaperNumber], scale: str) -> Chart:
    """Mean and 95 % interval over seeds, a line for each set of runs that differ in the batch alone."""
    percent = found.metric == "test_accuracy"
    factor = 100.0 if percent else 1.0
    name = found.metric_label + (" (%)" if percent else "")
    title = found.metric_label.capitalize() + " against the batch"
    chart = Chart(title, "global batch", name, scale=scale, log_x=True)
    for curve in found.curves:
        done = [group for group in curve.groups if group.mean is not None]
        if done:
            chart.line(
                curve.label,
                [group.global_batch for group in done],
                [factor * (group.mean or 0.0) for group in done],
                band=Band(
                    [None if group.low is None else factor * group.low for group in done],
                    [None if group.high is None else factor * group.high for group in done],
                    [group.n for group in done],
                ),
            )
    for number in numbers:
        if number.measure == found.metric and found.metric_label.startswith("test"):
            chart.horizontal_line(
                factor * number.value, f"{format_metric(number.value, number.measure)}, {number.source}"
            )
    return chart


def preferred_batch_chart(found: SweepResults, scale: str) -> Chart:
    """Gahlot et al., Figs. 4 and 5: which batch each learning rate prefers."""
    chart = Chart("Preferred batch for each lr", "learning rate", "global batch", scale=scale, log_x=True, log_y=True)
    lrs = sorted(found.preferred, key=lambda preferred: preferred.lr)
    chart.line(
        "best mean",
        [preferred.lr for preferred in lrs],
        [preferred.batch for preferred in lrs],
        band=Band(
            [preferred.low_batch for preferred in lrs],
            [preferred.high_batch for preferred in lrs],
            [preferred.n for preferred in lrs],
        ),
    )
    return chart


def _describe_critical_batches(curves: tuple[BatchCurve, ...]) -> str:
    left = [f"{curve.label}: {curve.critical_batch:,}" for curve in curves if curve.critical_batch]
    if left:
        return f"Critical batches: {'; '.join(left)}."
    return "No critical batch was met." if all(curve.largest_good_batch for curve in curves) else ""
