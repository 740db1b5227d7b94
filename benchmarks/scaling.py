"""Simulated against measured steps on 2 ranks of this machine, for several models: each is to be within 25 %.

    python benchmarks/scaling.py [--rounds 3] [--steps 20] [--models mlp,cnn] [--out results/scaling]

For each model: this machine is calibrated (all-reduces after steps and beside them, steps without communication; none
of it a step that is predicted), and DDP with several bucket caps and Horovod with several cycles and fusion buffers
take real steps, all in turn. A simulation starts from steps without communication that the same processes take.
Writes measured.md and measured.csv, and machine.json of the first model.
On an idle machine a round of one model takes a minute or two; what others do meanwhile is written beside every row.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from bigbatch.artifacts import atomic
from bigbatch.artifacts.provenance import collect
from bigbatch.output.formatting import format_csv
from bigbatch.scaling.measurement.measurement import TOLERANCE, Measurement, measure
from bigbatch.scaling.measurement.report import configuration_rows
from bigbatch.scaling.measurement.request import MeasurementOptions, SettingSweep, build_request

# name: model, options, sample, batch per rank. The last two were added when the simulator was done: nothing in it was
# ever chosen with their steps in sight
MODELS: dict[str, tuple[str, list[str], str, int]] = {
    "mlp": ("mlp", ["model.hidden=[512,512]"], "3,32,32", 64),
    "cnn": ("cnn", ["model.width=32", "model.hidden=256"], "3,32,32", 32),
    "lstm": ("lstm", ["model.hidden=256"], "1,28,28", 32),
    "resnet_cifar": ("resnet_cifar", [], "3,32,32", 16),
    "deeper mlp": ("mlp", ["model.hidden=[1024,1024,1024]"], "1,28,28", 256),
    "narrow cnn": ("cnn", ["model.width=16", "model.hidden=128"], "3,32,32", 128),
}
COLUMNS = (
    *("model", "what", "best ms", "median ms", "without communication ms", "simulated ms", "error"),
    *(f"within {TOLERANCE:.0%}", "calibration alone", "others' cores", "load"),
)
# beside the engines' own choices: a quarter of the model; 1 ms and a buffer that holds all
_FRACTIONS = (1.0, 1 / 8)
_CYCLES_MS = (5.0, 20.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=None)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    found = {name: _measured(name, options) for name in options.models.split(",")}
    rows = [row for name, one in found.items() for row in _rows(name, one)]
    holds = sum(one.within_tolerance for measured in found.values() for one in measured.predictions)
    print(f"{holds} of {len(rows)} simulated steps are within {TOLERANCE:.0%} of the measured ones")
    if options.out:
        text = format_csv([{**row, "model": name} for name, one in found.items() for row in configuration_rows(one)])
        atomic.write_text(options.out / "measured.csv", text)
        atomic.write_text(options.out / "measured.md", _markdown(found, rows, holds))
        machine = next(one.calibration.machine for one in found.values() if one.calibration)
        atomic.write_text(options.out / "machine.json", machine.model_dump_json(indent=2) + "\n")


def _measured(name: str, options: argparse.Namespace) -> Measurement:
    model, settings, sample, rank_batch = MODELS[name]
    measurement_options = MeasurementOptions(
        model=model,
        engines=options.engines.split(",") if options.engines else (),
        ranks="2",
        rank_batch=rank_batch,
        sample=sample,
        rounds=options.rounds,
        steps=options.steps,
        settings=settings,
        out=options.out,
    )
    request = build_request(measurement_options)
    weak = tuple(one for one in request.comparisons if one.scaling == "weak")
    engines = {one.ranks.engine for one in weak}
    request = replace(request, comparisons=weak, sweeps=tuple(_sweeps(engines, rank_batch, request.gradient_bytes)))

    def report(line: str) -> None:
        print(f"{name}: {line}", file=sys.stderr)

    found = measure(request, report, calibrate=True, with_timeline=False)
    for row in _rows(name, found):
        print("  ".join(str(cell) for cell in row), flush=True)
    return found


def _sweeps(engines: set[str], rank_batch: int, gradient_bytes: int) -> list[SettingSweep]:
    model_mb = gradient_bytes / 2**20
    values: dict[tuple[str, str], list[float]] = {
        ("ddp", "bucket_mb"): [float(f"{fraction * model_mb:.3g}") for fraction in _FRACTIONS],
        ("horovod", "cycle_ms"): list(_CYCLES_MS),
        ("horovod", "fusion_mb"): [0.0],
    }
    return [
        SettingSweep(engine, setting, 2, rank_batch, tuple(listed))
        for (engine, setting), listed in values.items()
        if engine in engines
    ]


def _rows(name: str, found: Measurement) -> list[list[str]]:
    listed = []
    for one in found.predictions:
        timing = found.timings[one.configuration]
        others = timing.best.others_cores
        listed.append([
            name,
            one.configuration.label,
            f"{1e3 * timing.best_s:.2f}",
            f"{1e3 * one.measured_s:.2f}",
            "" if one.without_communication_s is None else f"{1e3 * one.without_communication_s:.2f}",
            f"{1e3 * one.simulated_s:.2f}",
            f"{one.error:+.0%}",
            "yes" if one.within_tolerance else "no",
            f"{1e3 * one.calibrated_s:.2f} ({one.calibrated_error:+.0%})",
            "" if others is None else f"{others:.2f}",
            f"{timing.best.load_1min:.1f}",
        ])  # fmt: skip
    return listed


def _markdown(found: dict[str, Measurement], rows: list[list[str]], holds: int) -> str:
    origin = collect()
    counts = next(iter(found.values())).request.counts
    predicted = [one for measured in found.values() for one in measured.predictions]
    by_calibration = sum(abs(one.calibrated_error) <= TOLERANCE for one in predicted)
    lines = [
        "# Measured against simulated, 2 ranks of one machine",
        "",
        f"`{shlex.join(['python', *sys.argv])}`, commit {(origin['commit'] or 'unknown')[:12]}, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {origin['hardware']['cpu']}, {os.cpu_count()} cores.",
        "",
        f"Measured: {counts.rounds} rounds, each the median of {counts.timed_steps} steps, one thread per rank, gloo "
        "over loopback; errors are against the median of rounds. Simulated: the expected step, its computing taken "
        "from steps of the same processes in which nothing is sent (the same step took up to "
        f"{_largest_slowdown(found):.0%} longer in one process than in another), its messages from this machine's "
        f"calibration. {holds} of {len(rows)} are within {TOLERANCE:.0%}. From the calibration alone, computing "
        f"included, {by_calibration} of {len(rows)} are. No number is fitted on the steps that are predicted; "
        "what the simulator takes into account was chosen with earlier measurements of the first four models in sight.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows),
        "",
        "## Calibration",
        "",
        "| model | batch per rank | gradients MiB | step alone ms | contention | jitter | least µs | largest |",
        "|---|---|---|---|---|---|---|---|",
        *(_calibrated(name, one) for name, one in found.items()),
        "",
        "## Efficiency",
        "",
        *(f"- {name}, {words}" for name, one in found.items() for words in _efficiencies(one)),
        "",
    ]
    return "\n".join(lines)


def _largest_slowdown(found: dict[str, Measurement]) -> float:
    """Return how much longer the step without communication took in the slowest start than in the fastest."""
    medians = [
        [median(one.without_communication_s) for one in timing.rounds if one.without_communication_s]
        for measured in found.values()
        for timing in measured.timings.values()
    ]
    return max((max(times) / min(times) - 1 for times in medians if times), default=0.0)


def _calibrated(name: str, found: Measurement) -> str:
    assert found.calibration
    machine, profile = found.calibration.machine, found.calibration.profile
    size, us = machine.links.points[-1]  # type: ignore[union-attr]
    cells = (
        *(
            name,
            profile.rank_batch,
            f"{profile.gradient_bytes / 2**20:.2f}",
            f"{profile.compute_us / 1e3:.2f}",
        ),
        *(f"{machine.contention:.3f}", f"{machine.jitter.fraction:.3f}", f"{machine.control_us:.0f}"),
        f"{size / 2**20:.0f} MiB in {us / 1e3:.1f} ms",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _efficiencies(found: Measurement) -> list[str]:
    return [
        f"{one.comparison.ranks.label}, {one.comparison.scaling}: "
        + (f"refused, {one.refusal}" if one.value is None else f"{one.value:.1%}")
        for one in found.efficiencies
    ]


if __name__ == "__main__":
    main()
