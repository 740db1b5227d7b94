"""A sweep: its configuration, the metric against the batch, the critical batch, the batch that each lr prefers."""

from __future__ import annotations

from collections.abc import Iterable

from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_value
from bigbatch.output.page import Page
from bigbatch.recipes import PaperNumber
from bigbatch.sweeps import Sweep, SweepResults, draw_curve, format_metric


def add_sweep(page: Page, sweep: Sweep, numbers: Iterable[PaperNumber], scale: str) -> None:
    """Add grids, variants and seeds, then the results, with warnings first where the best value ends a grid."""
    config, found = sweep.config, sweep.analyze()
    page.heading(f"Sweep: {config.title or sweep.folder.name}")
    lines = [f"{name} = {', '.join(map(format_value, values))}" for name, values in config.grids.items()]
    lines += [
        f"{name}: {' '.join(f'{field}={format_value(value)}' for field, value in changes.items()) or 'unchanged'}"
        for name, changes in config.variants.items()
    ]
    lines.append(f"{config.seeds} seed{'s' if config.seeds != 1 else ''}, {len(sweep.points)} settings and seeds")
    page.code("\n".join([*lines, " ".join(config.command)] if config.command else lines))
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
        critical = [f"{curve.label}: {curve.critical_batch:,}" for curve in found.curves if curve.critical_batch]
        caption = f"Critical batches: {'; '.join(critical)}." if critical else ""
        if not critical and all(curve.largest_good_batch for curve in found.curves):
            caption = "No critical batch was met."
        charts.append((_draw_against_batch(found, numbers, scale), caption))
    if len(found.preferred) > 1:
        charts.append((_draw_preferred_batches(found, scale), "The batch of the best mean; the band is over seeds."))
    page.charts(charts)


def _draw_against_batch(found: SweepResults, numbers: Iterable[PaperNumber], scale: str) -> Chart:
    """Mean and 95 % interval over seeds, a line for each set of runs that differ in the batch alone."""
    factor, unit = (100.0, " (%)") if found.metric == "test_accuracy" else (1.0, "")
    title = found.metric_label.capitalize() + " against the batch"
    chart = Chart(title, "global batch", found.metric_label + unit, scale=scale, log_x=True)
    for curve in found.curves:
        draw_curve(chart, curve, found.metric)
    for number in numbers:
        if number.measure == found.metric and found.metric_label.startswith("test"):
            label = f"{format_metric(number.value, number.measure)}, {number.source}"
            chart.horizontal_line(factor * number.value, label)
    return chart


def _draw_preferred_batches(found: SweepResults, scale: str) -> Chart:
    """Gahlot et al., Figs. 4 and 5: which batch each learning rate prefers."""
    chart = Chart("Preferred batch for each lr", "learning rate", "global batch", scale=scale, log_x=True, log_y=True)
    by_lr = sorted(found.preferred, key=lambda one: one.lr)
    band = Band([one.low_batch for one in by_lr], [one.high_batch for one in by_lr], [one.n for one in by_lr])
    chart.line("best mean", [one.lr for one in by_lr], [one.batch for one in by_lr], band=band)
    return chart
