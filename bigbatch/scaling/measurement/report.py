"""The report of a measurement: tables on the terminal, figures, JSON, CSV, this machine's description, one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic, provenance
from bigbatch.output.figures import COLOURS, Chart
from bigbatch.output.page import Page
from bigbatch.scaling.measurement.measurement import TOLERANCE, Measurement
from bigbatch.scaling.published import PublishedComparison
from bigbatch.scaling.report import (
    TableRow,
    add_published_points,
    add_table,
    describe_commit,
    phase_cells,
    print_table,
    print_text,
    write_files,
)

_EFFICIENCY_CAPTION = (
    "Throughput over ranks times that of one process, best rounds. Simulated where this machine was calibrated: the "
    "median step of one process over the simulated one."
)
_PHASES_CAPTION = (
    "Exposed: waited after the last own gradient was ready. Overlap: sent before that. Agree: Horovod's negotiation. "
    "Medians of recorded steps, which are not the timed ones."
)
_SWEEP_UNITS = {"bucket_mb": "bucket cap, MiB", "cycle_ms": "cycle, ms", "fusion_mb": "fusion buffer, MiB"}


def print_measurement(measurement: Measurement) -> None:
    """Print step times, phases, and efficiencies or why there are none."""
    model, counts = measurement.request.model, measurement.request.counts
    print_text(
        f"{model.name}, sample {','.join(map(str, model.sample_shape))}, one thread per rank: "
        f"medians of {counts.timed_steps} steps in {counts.rounds} rounds, in ms"
    )
    print_table(time_rows(measurement), left=("what",))
    phases = phase_rows(measurement)
    for row in phases:  # a terminal has no room for the update and for the sizes of messages
        row.pop("update")
        row["sends"] = str(row["sends"]).partition(":")[0]
    print_table(phases, left=("what",))
    if measurement.efficiencies:
        print_table(efficiency_rows(measurement), left=("scaling", "what"))
    for reason in measurement.refusals:
        print_text(f"no efficiency: {reason}")


def write_report(
    measurement: Measurement, published: Sequence[PublishedComparison], folder: Path, command: str
) -> list[Path]:
    """Write measure.json, measure.csv, machine.json where it was calibrated, figures, and the page as the last."""
    request = measurement.request
    about = [command, describe_commit(), provenance.collect()["hardware"]["cpu"]]
    scale = (
        f"{request.model.name}, batch {request.rank_batch} per rank, {measurement.cores} cores, "
        f"{request.counts.rounds} rounds"
    )
    efficiency, phases = draw_efficiency(measurement, scale), draw_phases(measurement, scale)
    sweeps = draw_sweeps(measurement, scale)

    page = Page(f"{request.model.name}: scaling, measured", f"{scale}. One thread per rank, synthetic samples.")
    if efficiencies := efficiency_rows(measurement):
        page.key_numbers((f"{row['scaling']} scaling, {row['what']}", str(row["efficiency"])) for row in efficiencies)
    for reason in measurement.refusals:
        page.text(f"No efficiency: {reason}.", kind="warning")
    page.charts([*([(efficiency, _EFFICIENCY_CAPTION)] if efficiency else []), (phases, _PHASES_CAPTION)])
    page.heading("Step times in ms")
    add_table(page, time_rows(measurement))
    page.heading("What a step consists of, in ms")
    add_table(page, phase_rows(measurement))
    if sweeps:
        page.heading("One setting at a time")
        page.charts((chart, "Best and median over rounds; dashed: simulated.") for chart in sweeps.values())
    if measurement.calibration:
        _add_validation(page, measurement)
        atomic.write_text(folder / "machine.json", measurement.calibration.machine.model_dump_json(indent=2))
    add_published_points(page, published)
    if traces := sorted(folder.glob("trace_*.svg")):
        page.heading("Traces")
        page.svg_images((path.read_text(encoding="utf-8"), path.stem) for path in traces)
    page.footer(about)
    charts = {"phases": phases, **sweeps, **({"efficiency": efficiency} if efficiency else {})}
    numbers = build_measurement_json(measurement, about)
    return write_files(folder, "measure", page, numbers, configuration_rows(measurement), charts)


def _add_validation(page: Page, measurement: Measurement) -> None:
    assert measurement.calibration is not None
    machine = measurement.calibration.machine
    page.heading("Simulated against measured")
    page.text(validation_sentence(measurement))
    page.text(
        "A simulation starts from what a rank computes in a step. Here that is timed in the same start as the measured "
        "steps, in steps without communication; all-reduces are those of the calibration below. The last columns take "
        "computation from it as well. 'bigbatch scale simulate --machine machine.json' times the model itself."
    )
    add_table(page, validation_rows(measurement))
    page.heading("This machine, calibrated")
    page.text(
        f"contention {machine.contention:.3f} (a step without communication, {machine.ranks} ranks at once over one "
        f"alone), jitter {machine.jitter.fraction:.3f} (how far apart ranks end a step that they begin together), "
        f"smallest all-reduce {machine.control_us:.0f} µs. None of it is fitted on the steps above."
    )
    page.code(machine.model_dump_json(indent=2))


def validation_sentence(measurement: Measurement) -> str:
    if measurement.refusals:
        return f"Simulated steps are not judged by these: {measurement.refusals[0]}."
    right = sum(one.within_tolerance for one in measurement.predictions)
    return f"{right} of {len(measurement.predictions)} simulated steps are within {TOLERANCE:.0%} of the median round."


def validation_rows(measurement: Measurement) -> list[TableRow]:
    """Errors are empty where the machine was too busy to judge a simulation."""
    judged = not measurement.refusals
    return [
        {
            "what": one.configuration.label,
            "measured ms": 1e3 * one.measured_s,
            "without communication ms": one.without_communication_s and 1e3 * one.without_communication_s,
            "simulated ms": 1e3 * one.simulated_s,
            "error": f"{one.error:+.0%}" if judged else "",
            f"within {TOLERANCE:.0%}": ("yes" if one.within_tolerance else "no") if judged else "",
            "from the calibration alone ms": 1e3 * one.calibrated_s,
            "its error": f"{one.calibrated_error:+.0%}" if judged else "",
        }
        for one in measurement.predictions
    ]


def time_rows(measurement: Measurement) -> list[TableRow]:
    """Best and median over rounds; the simulated step, with its error where it is judged."""
    simulated = {
        one.configuration: f"{1e3 * one.simulated_s:.2f}" + ("" if measurement.refusals else f" ({one.error:+.0%})")
        for one in measurement.predictions
    }
    return [
        {
            "what": one.label,
            "best": 1e3 * timing.best_s,
            "median": 1e3 * timing.median_s,
            "CPU": 1e3 * timing.best_cpu_s,
            "load": timing.best.load_1min,
            "simulated": simulated.get(one, ""),
        }
        for one, timing in measurement.timings.items()
    ]


def phase_rows(measurement: Measurement) -> list[TableRow]:
    recorded = ((one.label, timing.phases) for one, timing in measurement.timings.items())
    return [{"what": label, **phase_cells(phases)} for label, phases in recorded if phases]


def efficiency_rows(measurement: Measurement) -> list[TableRow]:
    return [
        {
            "scaling": one.comparison.scaling,
            "what": one.comparison.ranks.label,
            "alone ms": 1e3 * one.alone.best_s,
            "ms": 1e3 * one.ranks.best_s,
            "efficiency": "refused" if one.value is None else f"{one.value:.1%}",
        }
        for one in measurement.efficiencies
    ]


def configuration_rows(measurement: Measurement) -> list[TableRow]:
    """The rows of measure.csv, one for each configuration."""
    predictions = {one.configuration: one for one in measurement.predictions}
    rows: list[TableRow] = []
    for one, timing in measurement.timings.items():
        phases, prediction = timing.phases, predictions.get(one)
        rows.append(
            {
                "model": measurement.request.model.name,
                **asdict(one),
                "settings": " ".join(f"{name}={value:g}" for name, value in one.settings),
                "best_ms": 1e3 * timing.best_s,
                "median_ms": 1e3 * timing.median_s,
                "best_cpu_ms": 1e3 * timing.best_cpu_s,
                "load_1min": timing.best.load_1min,
                "others_cores": timing.best.others_cores,
                "exposed_ms": phase_cells(phases)["exposed"] if phases else None,
                "simulated_ms": 1e3 * prediction.simulated_s if prediction else None,
                "error": prediction.error if prediction else None,
            }
        )
    return rows


def build_measurement_json(measurement: Measurement, about: Sequence[str]) -> dict[str, Any]:
    model = measurement.request.model
    return {
        "measured": True,
        "about": list(about),
        "model": model.name,
        "model_options": dict(model.options),
        "sample_shape": list(model.sample_shape),
        "classes": model.classes,
        "cores": measurement.cores,
        "hosts": list(measurement.request.hosts),
        "cases": configuration_rows(measurement),
        "efficiencies": [
            {
                "scaling": one.comparison.scaling,
                "engine": one.comparison.ranks.engine,
                "ranks": one.comparison.ranks.ranks,
                "efficiency": one.value,
                "refused": one.refusal,
            }
            for one in measurement.efficiencies
        ],
        "rounds": [
            {
                "case": one.configuration.label,
                "round": one.number,
                "load_1min": one.load_1min,
                "others_cores": one.others_cores,
                "ranks": [rank.model_dump() for rank in one.ranks],
            }
            for one in (*measurement.rounds, *measurement.with_timeline.values())
        ],
    }


def draw_efficiency(measurement: Measurement, scale: str) -> Chart | None:
    """Weak and strong scaling of each engine, and the simulated weak curve of a calibrated machine. None: refused."""
    simulated = {one.configuration: one.simulated_s for one in measurement.predictions}
    curves: dict[str, list[tuple[int, float]]] = {}
    for one in measurement.efficiencies:
        if one.value is not None:
            ranks, name = one.comparison.ranks, f"{one.comparison.ranks.engine}, {one.comparison.scaling}"
            curves.setdefault(name, [(1, 1.0)]).append((ranks.ranks, one.value))
            if one.comparison.scaling == "weak" and ranks in simulated:
                value = one.alone.median_s / simulated[ranks]
                curves.setdefault(f"{name}, simulated", [(1, 1.0)]).append((ranks.ranks, value))
    if not curves:
        return None
    chart = Chart("Efficiency against ranks", "ranks", "efficiency", scale=f"measured: {scale}", log_x=True)
    for name, points in curves.items():
        chart.line(name, *zip(*points, strict=True), dashed=name.endswith("simulated"))
    chart.axes.set_ylim(0, 1.1)
    return chart


def draw_phases(measurement: Measurement, scale: str) -> Chart:
    """A bar for each configuration: forward, backward, exposed communication, update."""
    rows = phase_rows(measurement)[::-1]
    labels, left_ms = [str(row["what"]) for row in rows], [0.0] * len(rows)
    chart = Chart(
        "What a step consists of",
        "ms",
        "",
        scale=f"measured: {scale}",
        size_inches=(6.4, 1.2 + 0.3 * len(rows)),
        legend_place="beside",  # bars leave no room
    )
    colours = {"forward": "#6B7480", "backward": COLOURS[0], "exposed": COLOURS[1], "update": COLOURS[2]}
    for name, colour in colours.items():
        widths_ms = [float(str(row[name] or 0.0)) for row in rows]
        chart.axes.barh(range(len(rows)), widths_ms, left=left_ms, color=colour, label=name)
        left_ms = [left + width for left, width in zip(left_ms, widths_ms, strict=True)]
        pairs = zip(labels, widths_ms, strict=True)
        chart.rows += [{"series": name, "what": label, "ms": width} for label, width in pairs]
    chart.axes.set_yticks(range(len(rows)), labels)
    return chart


def draw_sweeps(measurement: Measurement, scale: str) -> dict[str, Chart]:
    simulated = {one.configuration: one.simulated_s for one in measurement.predictions}
    charts = {}
    for sweep in measurement.request.sweeps:
        unit = _SWEEP_UNITS[sweep.setting]
        values = sweep.values
        timings = [measurement.timings[one] for one in sweep.configurations]
        title = f"{sweep.engine}: step time against {unit.partition(',')[0]}"
        chart = Chart(title, unit, "ms per step", scale=f"measured: {scale}", log_x=min(values) > 0)
        chart.line("best", values, [1e3 * timing.best_s for timing in timings])
        chart.line("median", values, [1e3 * timing.median_s for timing in timings])
        if simulated:
            chart.line("simulated", values, [1e3 * simulated[one] for one in sweep.configurations], dashed=True)
        chart.axes.set_ylim(bottom=0)
        charts[f"sweep_{sweep.engine}_{sweep.setting}"] = chart
    return charts
