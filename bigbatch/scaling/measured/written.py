"""A measurement on disk: all records as JSON, rows as CSV, this machine's description, pictures, one page."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.output.formatting import format_csv
from bigbatch.output.page import Page
from bigbatch.scaling import report as scaling_report
from bigbatch.scaling.measured import drawn, shown
from bigbatch.scaling.measured.measurement import Measurement
from bigbatch.scaling.measured.predicted import WITHIN
from bigbatch.scaling.published import PublishedComparison

VALIDATION = (
    *("what", "measured ms", "without messages ms", "simulated ms", "error", f"within {WITHIN:.0%}"),
    "from the calibration alone ms",
)


def write(found: Measurement, checked: Sequence[PublishedComparison], folder: Path, command: str) -> list[Path]:
    """measure.json, measure.csv, machine.json where it was calibrated, pictures, and the page as the last."""
    from bigbatch.artifacts.provenance import collect

    subject, origin = found.asked.subject, collect()
    commit = (origin["commit"] or "unknown")[:12]
    about = [command, f"commit {commit}, {time.strftime('%Y-%m-%d', time.gmtime())}", origin["hardware"]["cpu"]]
    scale = (
        f"{subject.model}, batch {found.asked.rank_batch} a rank, {found.cores} cores, {found.asked.plan.rounds} rounds"
    )
    efficiency, phases, sweeps = drawn.efficiency(found, scale), drawn.phases(found, scale), drawn.sweeps(found, scale)
    written = [
        atomic.write_text(folder / "measure.json", json.dumps(measurement_json(found, about), indent=2)),
        atomic.write_text(folder / "measure.csv", format_csv(rows(found))),
        *(path for name, chart in {"phases": phases, **sweeps}.items() for path in chart.save(folder / name)),
    ]
    if efficiency:
        written += efficiency.save(folder / "efficiency")
    if found.calibration:
        text = found.calibration.machine.model_dump_json(indent=2)
        written.append(atomic.write_text(folder / "machine.json", text))

    page = Page(f"{subject.model}: scaling, measured", f"{scale}. One thread a rank, made-up samples.")
    if found.efficiencies:
        page.strip(
            (f"{one.comparison.scaling} scaling, {one.comparison.ranks.label}",
             "refused" if one.value is None else f"{one.value:.1%}")
            for one in found.efficiencies
        )  # fmt: skip
    for words in dict.fromkeys(one.refused for one in found.efficiencies if one.refused):
        page.text(f"No efficiency: {words}.", kind="warning")
    page.charts([(chart, caption) for chart, caption in ((efficiency, _CURVES), (phases, _PHASES)) if chart])
    page.heading("Step times in ms")
    page.table(shown.TIMES, shown.time_rows(found))
    page.heading("What a step consists of, in ms")
    page.table(shown.PHASES, shown.phase_rows(found))
    if sweeps:
        page.heading("One setting at a time")
        page.charts((chart, "Best and median over rounds; dashed: simulated.") for chart in sweeps.values())
    _validation(page, found)
    scaling_report.add_published_points(page, checked)
    traces = sorted(folder.glob("trace_*.svg"))
    if traces:
        page.heading("Traces")
        page.pictures((path.read_text(encoding="utf-8"), path.stem) for path in traces)
    page.footer(about)
    return [*written, page.write(folder / "measure.html")]


_CURVES = (
    "Throughput over ranks times that of one process, best rounds. Simulated where this machine was calibrated: the "
    "median step of one process over the simulated one."
)
_PHASES = (
    "Exposed: waited after the last own gradient was ready. Medians of steps with notes, which are not the timed ones."
)


def _validation(page: Page, found: Measurement) -> None:
    if found.calibration is None:
        return
    machine = found.calibration.machine
    page.heading("Simulated against measured")
    page.text(words_of(found))
    page.text(
        "A simulation starts from what a rank computes in a step. Here that is timed in the same start as the measured "
        "steps, in steps without messages; all-reduces are those of the calibration below. The last column takes "
        "computing from it as well. 'bigbatch scale simulate --machine machine.json' times the model itself."
    )
    page.table(VALIDATION, validation_rows(found))
    page.heading("This machine, calibrated")
    page.text(
        f"contention {machine.contention:.3f} (a step without communication, {machine.ranks} ranks at once over one "
        f"alone), jitter {machine.jitter.fraction:.3f} (how unlike ranks are that begin a step together), smallest "
        f"all-reduce {machine.control_us:.0f} µs. None of it is fitted on the steps above."
    )
    page.code(machine.model_dump_json(indent=2))


def words_of(found: Measurement) -> str:
    if found.refused:
        return f"Simulated steps are not judged by these: {found.refused}."
    holds = sum(one.holds for one in found.predicted)
    return f"{holds} of {len(found.predicted)} simulated steps are within {WITHIN:.0%} of the median of rounds."


def validation_rows(found: Measurement) -> list[list[Any]]:
    return [
        [
            one.case.label,
            f"{1e3 * one.measured_s:.2f}",
            "" if one.silent_s is None else f"{1e3 * one.silent_s:.2f}",
            f"{1e3 * one.simulated_s:.2f}",
            *(("", "") if found.refused else (f"{one.error:+.0%}", "yes" if one.holds else "no")),
            f"{1e3 * one.calibrated_s:.2f}" + ("" if found.refused else f" ({one.calibrated_error:+.0%})"),
        ]
        for one in found.predicted
    ]


def rows(found: Measurement) -> list[dict[str, Any]]:
    """One a case."""
    simulated = {one.case: one for one in found.predicted}
    listed = []
    for case, timing in found.timings.items():
        phases, one = timing.phases, simulated.get(case)
        listed.append(
            {
                "model": found.asked.subject.model,
                "engine": case.engine,
                "ranks": case.ranks,
                "rank_batch": case.rank_batch,
                "setting": " ".join(f"{name}={value:g}" for name, value in case.settings),
                "best_ms": 1e3 * timing.best_s,
                "median_ms": 1e3 * timing.median_s,
                "best_cpu_ms": 1e3 * timing.best_cpu_s,
                "load_1min": timing.best.load_1min,
                "others_cores": timing.best.others_cores,
                "exposed_ms": 1e3 * phases.exposed_s if phases and phases.exposed_s is not None else None,
                "simulated_ms": 1e3 * one.simulated_s if one else None,
                "error": one.error if one else None,
            }
        )
    return listed


def measurement_json(found: Measurement, about: Sequence[str]) -> dict[str, Any]:
    subject = found.asked.subject
    return {
        "measured": True,
        "about": list(about),
        "model": subject.model,
        "model_options": dict(subject.model_options),
        "sample_shape": list(subject.sample_shape),
        "classes": subject.classes,
        "cores": found.cores,
        "hosts": list(found.asked.hosts),
        "cases": rows(found),
        "efficiencies": [
            {
                "scaling": one.comparison.scaling,
                "engine": one.comparison.ranks.engine,
                "ranks": one.comparison.ranks.ranks,
                "efficiency": one.value,
                "refused": one.refused,
            }
            for one in found.efficiencies
        ],
        "rounds": [
            {
                "case": one.case.label,
                "round": one.number,
                "load_1min": one.load_1min,
                "others_cores": one.others_cores,
                "ranks": [record.model_dump() for record in one.records],
            }
            for one in (*found.rounds, *found.traced.values())
        ],
    }
