"""Charts of a measurement: efficiencies, what a step consists of, one setting at a time."""

from __future__ import annotations

from bigbatch.output.figures import COLOURS, Chart
from bigbatch.scaling.measured.measurement import Measurement

_UNITS = {"bucket_mb": "bucket cap, MiB", "cycle_ms": "cycle, ms", "fusion_mb": "fusion buffer, MiB"}


def efficiency(found: Measurement, scale: str) -> Chart | None:
    """Weak and strong scaling for each engine; for a calibrated machine the simulated weak curve. None: all refused."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for one in found.efficiencies:
        if one.value is not None:
            name = f"{one.comparison.ranks.engine}, {one.comparison.scaling}"
            curves.setdefault(name, [(1, 1.0)]).append((one.comparison.ranks.ranks, one.value))
    if not curves:
        return None
    chart = Chart("Efficiency against ranks", "ranks", "efficiency", scale=f"measured: {scale}", log_x=True)
    for name, points in curves.items():
        xs, ys = zip(*points, strict=True)
        chart.line(name, xs, ys)
    simulated = {one.case: one.simulated_s for one in found.predicted}
    for one in found.efficiencies:
        case = one.comparison.ranks
        if one.comparison.scaling == "weak" and case in simulated and one.value is not None:
            value = one.alone.median_s / simulated[case]
            chart.line(f"{case.engine}, weak, simulated", [1, case.ranks], [1.0, value], dashed=True)
    chart.axes.set_ylim(0, 1.1)
    return chart


def phases(found: Measurement, scale: str) -> Chart:
    """A bar for each case: forward, backward, waiting, update."""
    listed = [(case.label, timing.phases) for case, timing in found.timings.items() if timing.phases]
    chart = Chart(
        "What a step consists of",
        "ms",
        "",
        scale=f"measured: {scale}",
        size_inches=(6.4, 1.2 + 0.3 * len(listed)),
        legend_place="beside",  # bars leave no room
    )
    for row, (label, parts) in enumerate(reversed(listed)):
        left_ms = 0.0
        pieces = {
            "forward": parts.forward_s,
            "backward": parts.backward_s,
            "exposed": parts.exposed_s or 0.0,
            "update": parts.update_s,
        }
        for index, (name, seconds) in enumerate(pieces.items()):
            colour = ("#6B7480", COLOURS[0], COLOURS[1], COLOURS[2])[index]
            chart.axes.barh(row, 1e3 * seconds, left=left_ms, color=colour, label=name if row == 0 else None)
            left_ms += 1e3 * seconds
            chart.rows.append({"series": name, "what": label, "ms": 1e3 * seconds})
    chart.axes.set_yticks(range(len(listed)), [label for label, _ in reversed(listed)])
    return chart


def sweeps(found: Measurement, scale: str) -> dict[str, Chart]:
    simulated = {one.case: one.simulated_s for one in found.predicted}
    charts = {}
    for sweep in found.asked.sweeps:
        unit = _UNITS[sweep.setting]
        values = [dict(case.settings)[sweep.setting] for case in sweep.cases]
        timings = [found.timings[case] for case in sweep.cases]
        title = f"{sweep.engine}: step time against {unit.partition(',')[0]}"
        chart = Chart(title, unit, "ms a step", scale=f"measured: {scale}", log_x=min(values) > 0)
        chart.line("best", values, [1e3 * timing.best_s for timing in timings])
        chart.line("median", values, [1e3 * timing.median_s for timing in timings])
        if simulated:
            chart.line("simulated", values, [1e3 * simulated[case] for case in sweep.cases], dashed=True)
        chart.axes.set_ylim(bottom=0)
        charts[f"sweep_{sweep.engine}_{sweep.setting}"] = chart
    return charts
