"""The report of a measurement: tables on the terminal, figures, JSON, CSV, this machine's description, one page."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bigbatch.artifacts import atomic, provenance
from bigbatch.output.figures import COLOURS, Chart
from bigbatch.output.formatting import format_csv, terminal_table
from bigbatch.output.page import Page
from bigbatch.scaling.measurement.measurement import TOLERANCE, Measurement
from bigbatch.scaling.published import PublishedComparison
from bigbatch.scaling.report import add_published_points

TIME_COLUMNS = ("what", "best", "median", "CPU", "load", "simulated")
PHASE_COLUMNS = ("what", "forward", "backward", "exposed", "overlapped", "negotiation", "update", "sends")
_TERMINAL_PHASE_COLUMNS = ("what", "forward", "backward", "exposed", "overlap", "agree", "sends")
EFFICIENCY_COLUMNS = ("scaling", "what", "alone ms", "ms", "efficiency")
VALIDATION_COLUMNS = (
    *("what", "measured ms", "without communication ms", "simulated ms", "error", f"within {TOLERANCE:.0%}"),
    "from the calibration alone ms",
)
_EFFICIENCY_CAPTION = (
    "Throughput over ranks times that of one process, best rounds. Simulated where this machine was calibrated: the "
    "median step of one process over the simulated one."
)
_PHASES_CAPTION = (
    "Exposed: waited after the last own gradient was ready. Medians of recorded steps, which are not the timed ones."
)
_SWEEP_UNITS = {"bucket_mb": "bucket cap, MiB", "cycle_ms": "cycle, ms", "fusion_mb": "fusion buffer, MiB"}


def print_measurement(measurement: Measurement) -> None:
    """Print step times, phases, and efficiencies or why there are none."""
    console = Console()
    model, counts = measurement.request.model, measurement.request.counts
    console.print(
        f"{model.name}, sample {','.join(map(str, model.sample_shape))}, one thread per rank: "
        f"medians of {counts.timed_steps} steps in {counts.rounds} rounds, in ms",
        highlight=False,
    )
    console.print(terminal_table(TIME_COLUMNS, time_rows(measurement), left=("what",)))
    # a terminal has no room for the update and for the sizes of messages
    phases = [[*row[:6], row[7].partition(":")[0]] for row in phase_rows(measurement)]
    console.print(terminal_table(_TERMINAL_PHASE_COLUMNS, phases, left=("what",)))
    if measurement.efficiencies:
        rows = efficiency_rows(measurement)
        console.print(terminal_table(EFFICIENCY_COLUMNS, rows, left=("scaling", "what")))
    for reason in measurement.refusals:
        console.print(f"no efficiency: {reason}", highlight=False)


def write_report(
    measurement: Measurement, published: Sequence[PublishedComparison], folder: Path, command: str
) -> list[Path]:
    """Write measure.json, measure.csv, machine.json where it was calibrated, figures, and the page as the last."""
    request, origin = measurement.request, provenance.collect()
    commit = (origin["commit"] or "unknown")[:12]
    about = [command, f"commit {commit}, {time.strftime('%Y-%m-%d', time.gmtime())}", origin["hardware"]["cpu"]]
    scale = (
        f"{request.model.name}, batch {request.rank_batch} per rank, {measurement.cores} cores, "
        f"{request.counts.rounds} rounds"
    )
    efficiency, phases = draw_efficiency(measurement, scale), draw_phases(measurement, scale)
    sweeps = draw_sweeps(measurement, scale)
    named = {"phases": phases, **sweeps, **({"efficiency": efficiency} if efficiency else {})}
    written = [
        atomic.write_text(folder / "measure.json", json.dumps(measurement_json(measurement, about), indent=2)),
        atomic.write_text(folder / "measure.csv", format_csv(configuration_rows(measurement))),
        *(path for name, chart in named.items() for path in chart.save(folder / name)),
    ]
    if measurement.calibration:
        text = measurement.calibration.machine.model_dump_json(indent=2)
        written.append(atomic.write_text(folder / "machine.json", text))

    page = Page(f"{request.model.name}: scaling, measured", f"{scale}. One thread per rank, synthetic samples.")
    if measurement.efficiencies:
        rows = efficiency_rows(measurement)
        page.key_numbers((f"{scaling} scaling, {label}", value) for scaling, label, _, _, value in rows)
    for reason in measurement.refusals:
        page.text(f"No efficiency: {reason}.", kind="warning")
    page.charts([*([(efficiency, _EFFICIENCY_CAPTION)] if efficiency else []), (phases, _PHASES_CAPTION)])
    page.heading("Step times in ms")
    page.table(TIME_COLUMNS, time_rows(measurement))
    page.heading("What a step consists of, in ms")
    page.table(PHASE_COLUMNS, phase_rows(measurement))
    if sweeps:
        page.heading("One setting at a time")
        page.charts((chart, "Best and median over rounds; dashed: simulated.") for chart in sweeps.values())
    _add_validation(page, measurement)
    add_published_points(page, published)
    traces = sorted(folder.glob("trace_*.svg"))
    if traces:
        page.heading("Traces")
        page.svg_images((path.read_text(encoding="utf-8"), path.stem) for path in traces)
    page.footer(about)
    return [*written, page.write(folder / "measure.html")]


def _add_validation(page: Page, measurement: Measurement) -> None:
    if measurement.calibration is None:
        return
    machine = measurement.calibration.machine
    page.heading("Simulated against measured")
    page.text(validation_sentence(measurement))
    page.text(
        "A simulation starts from what a rank computes in a step. Here that is timed in the same start as the measured "
        "steps, in steps without communication; all-reduces are those of the calibration below. The last column takes "
        "computation from it as well. 'bigbatch scale simulate --machine machine.json' times the model itself."
    )
    page.table(VALIDATION_COLUMNS, validation_rows(measurement))
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


def validation_rows(measurement: Measurement) -> list[list[str]]:
    """Errors are empty where the machine was too busy to judge a simulation."""
    judged = not measurement.refusals
    return [
        [
            one.configuration.label,
            _ms(one.measured_s),
            _ms(one.without_communication_s),
            _ms(one.simulated_s),
            *((f"{one.error:+.0%}", "yes" if one.within_tolerance else "no") if judged else ("", "")),
            _ms(one.calibrated_s) + (f" ({one.calibrated_error:+.0%})" if judged else ""),
        ]
        for one in measurement.predictions
    ]


def time_rows(measurement: Measurement) -> list[list[str]]:
    """Best and median over rounds; the simulated step, with its error where it is judged."""
    simulated = {
        one.configuration: _ms(one.simulated_s) + ("" if measurement.refusals else f" ({one.error:+.0%})")
        for one in measurement.predictions
    }
    return [
        [
            one.label,
            *map(_ms, (timing.best_s, timing.median_s, timing.best_cpu_s)),
            f"{timing.best.load_1min:.1f}",
            simulated.get(one, ""),
        ]
        for one, timing in measurement.timings.items()
    ]


def phase_rows(measurement: Measurement) -> list[list[str]]:
    rows = []
    for one, timing in measurement.timings.items():
        if phases := timing.phases:
            times_us = (phases.forward_us, phases.backward_us, phases.exposed_us, phases.overlapped_us)
            cells = [_ms_of_us(us) for us in (*times_us, phases.negotiation_us, phases.update_us)]
            rows.append([one.label, *cells, describe_messages(phases.message_bytes)])
    return rows


def describe_messages(sizes: Sequence[int]) -> str:
    """Return how many messages there were, and how large: each where they are few, else their range."""
    if not sizes:
        return ""
    kib = [f"{size / 2**10:,.0f}" for size in sizes]
    listed = ", ".join(kib) if len(kib) <= 4 else f"{min(sizes) / 2**10:,.0f} to {max(sizes) / 2**10:,.0f}"
    return f"{len(sizes)}: {listed} KiB"


def efficiency_rows(measurement: Measurement) -> list[list[str]]:
    return [
        [
            *(one.comparison.scaling, one.comparison.ranks.label, _ms(one.alone.best_s), _ms(one.ranks.best_s)),
            "refused" if one.value is None else f"{one.value:.1%}",
        ]
        for one in measurement.efficiencies
    ]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def _ms_of_us(us: float | None) -> str:
    return "" if us is None else f"{us / 1e3:.2f}"


def configuration_rows(measurement: Measurement) -> list[dict[str, object]]:
    """The rows of measure.csv, one for each configuration."""
    predictions = {one.configuration: one for one in measurement.predictions}
    rows: list[dict[str, object]] = []
    for one, timing in measurement.timings.items():
        phases, prediction = timing.phases, predictions.get(one)
        rows.append(
            {
                "model": measurement.request.model.name,
                "engine": one.engine,
                "ranks": one.ranks,
                "rank_batch": one.rank_batch,
                "setting": " ".join(f"{name}={value:g}" for name, value in one.settings),
                "best_ms": 1e3 * timing.best_s,
                "median_ms": 1e3 * timing.median_s,
                "best_cpu_ms": 1e3 * timing.best_cpu_s,
                "load_1min": timing.best.load_1min,
                "others_cores": timing.best.others_cores,
                "exposed_ms": phases.exposed_us / 1e3 if phases and phases.exposed_us is not None else None,
                "simulated_ms": 1e3 * prediction.simulated_s if prediction else None,
                "error": prediction.error if prediction else None,
            }
        )
    return rows


def measurement_json(measurement: Measurement, about: Sequence[str]) -> dict[str, Any]:
    request = measurement.request
    return {
        "measured": True,
        "about": list(about),
        "model": request.model.name,
        "model_options": dict(request.model.options),
        "sample_shape": list(request.model.sample_shape),
        "classes": request.model.classes,
        "cores": measurement.cores,
        "hosts": list(request.hosts),
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
    curves: dict[str, list[tuple[int, float]]] = {}
    for one in measurement.efficiencies:
        if one.value is not None:
            name = f"{one.comparison.ranks.engine}, {one.comparison.scaling}"
            curves.setdefault(name, [(1, 1.0)]).append((one.comparison.ranks.ranks, one.value))
    if not curves:
        return None
    chart = Chart("Efficiency against ranks", "ranks", "efficiency", scale=f"measured: {scale}", log_x=True)
    for name, points in curves.items():
        ranks, values = zip(*points, strict=True)
        chart.line(name, ranks, values)
    simulated = {one.configuration: one.simulated_s for one in measurement.predictions}
    for one in measurement.efficiencies:
        configuration = one.comparison.ranks
        if one.comparison.scaling == "weak" and configuration in simulated and one.value is not None:
            value = one.alone.median_s / simulated[configuration]
            name = f"{configuration.engine}, weak, simulated"
            chart.line(name, [1, configuration.ranks], [1.0, value], dashed=True)
    chart.axes.set_ylim(0, 1.1)
    return chart


def draw_phases(measurement: Measurement, scale: str) -> Chart:
    """A bar for each configuration: forward, backward, exposed communication, update."""
    listed = [(one.label, timing.phases) for one, timing in measurement.timings.items() if timing.phases]
    chart = Chart(
        "What a step consists of",
        "ms",
        "",
        scale=f"measured: {scale}",
        size_inches=(6.4, 1.2 + 0.3 * len(listed)),
        legend_place="beside",  # bars leave no room
    )
    colours = {"forward": "#6B7480", "backward": COLOURS[0], "exposed": COLOURS[1], "update": COLOURS[2]}
    for row, (label, phases) in enumerate(reversed(listed)):
        left_ms = 0.0
        for name, colour in colours.items():
            width_ms = (getattr(phases, f"{name}_us") or 0.0) / 1e3
            chart.axes.barh(row, width_ms, left=left_ms, color=colour, label=name if row == 0 else None)
            left_ms += width_ms
            chart.rows.append({"series": name, "what": label, "ms": width_ms})
    chart.axes.set_yticks(range(len(listed)), [label for label, _ in reversed(listed)])
    return chart


def draw_sweeps(measurement: Measurement, scale: str) -> dict[str, Chart]:
    simulated = {one.configuration: one.simulated_s for one in measurement.predictions}
    charts = {}
    for sweep in measurement.request.sweeps:
        unit = _SWEEP_UNITS[sweep.setting]
        values = [dict(one.settings)[sweep.setting] for one in sweep.configurations]
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
