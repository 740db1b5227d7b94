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
from pathlib import Path
from statistics import median

from bigbatch.artifacts import atomic
from bigbatch.artifacts.provenance import collect
from bigbatch.output.formatting import format_csv
from bigbatch.scaling.measured import asked, measurement, written
from bigbatch.scaling.measured.cases import Case, Sweep
from bigbatch.scaling.measured.measurement import Measurement
from bigbatch.scaling.measured.predicted import WITHIN

# name: model, options, sample, batch a rank. The last two were added when the simulator was done: nothing in it was
# ever chosen with their steps in sight
MODELS: dict[str, tuple[str, list[str], tuple[int, ...], int]] = {
    "mlp": ("mlp", ["model.hidden=[512,512]"], (3, 32, 32), 64),
    "cnn": ("cnn", ["model.width=32", "model.hidden=256"], (3, 32, 32), 32),
    "lstm": ("lstm", ["model.hidden=256"], (1, 28, 28), 32),
    "resnet_cifar": ("resnet_cifar", [], (3, 32, 32), 16),
    "deeper mlp": ("mlp", ["model.hidden=[1024,1024,1024]"], (1, 28, 28), 256),
    "narrow cnn": ("cnn", ["model.width=16", "model.hidden=128"], (3, 32, 32), 128),
}
COLUMNS = (
    *("model", "what", "best ms", "median ms", "without messages ms", "simulated ms", "error", f"within {WITHIN:.0%}"),
    *("calibration alone", "others' cores", "load"),
)
# beside the engines' own choices: a quarter of the model; 1 ms and a buffer that holds all
_SHARES = (1.0, 1 / 8)
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
    holds = sum(one.holds for measured in found.values() for one in measured.predicted)
    print(f"{holds} of {len(rows)} simulated steps are within {WITHIN:.0%} of the measured ones")
    if options.out:
        text = format_csv([{**row, "model": name} for name, one in found.items() for row in written.rows(one)])
        atomic.write_text(options.out / "measured.csv", text)
        atomic.write_text(options.out / "measured.md", _markdown(found, rows, holds))
        machine = next(one.calibration.machine for one in found.values() if one.calibration)
        atomic.write_text(options.out / "machine.json", machine.model_dump_json(indent=2) + "\n")


def _measured(name: str, options: argparse.Namespace) -> Measurement:
    model, settings, sample_shape, rank_batch = MODELS[name]
    question = asked.asked(
        model,
        engines=options.engines,
        ranks="2",
        rank_batch=rank_batch,
        sample_shape=sample_shape,
        classes=10,
        rounds=options.rounds,
        steps=options.steps,
        hosts="",
        sweep=False,
        settings=settings,
        out=options.out,
    )
    engines = {one.ranks.engine for one in question.comparisons}
    chosen = asked.replaced(question, _sweeps(engines, rank_batch, question.gradient_bytes))
    found = measurement.measure(
        chosen, lambda line: print(f"{name}: {line}", file=sys.stderr), calibrate=True, trace=False
    )
    for row in _rows(name, found):
        print("  ".join(str(cell) for cell in row), flush=True)
    return found


def _sweeps(engines: set[str], rank_batch: int, gradient_bytes: int) -> list[Sweep]:
    model_mb = gradient_bytes / 2**20
    values = {
        ("ddp", "bucket_mb"): [float(f"{share * model_mb:.3g}") for share in _SHARES],
        ("horovod", "cycle_ms"): list(_CYCLES_MS),
        ("horovod", "fusion_mb"): [0.0],
    }
    return [
        Sweep(engine, name, tuple(Case(engine, 2, rank_batch, ((name, value),)) for value in listed))
        for (engine, name), listed in values.items()
        if engine in engines
    ]


def _rows(name: str, found: Measurement) -> list[list[str]]:
    listed = []
    for one in found.predicted:
        timing = found.timings[one.case]
        others = timing.best.others_cores
        listed.append([
            name,
            one.case.label,
            f"{1e3 * timing.best_s:.2f}",
            f"{1e3 * one.measured_s:.2f}",
            "" if one.silent_s is None else f"{1e3 * one.silent_s:.2f}",
            f"{1e3 * one.simulated_s:.2f}",
            f"{one.error:+.0%}",
            "yes" if one.holds else "no",
            f"{1e3 * one.calibrated_s:.2f} ({one.calibrated_error:+.0%})",
            "" if others is None else f"{others:.2f}",
            f"{timing.best.load_1min:.1f}",
        ])  # fmt: skip
    return listed


def _markdown(found: dict[str, Measurement], rows: list[list[str]], holds: int) -> str:
    origin = collect()
    plan = next(iter(found.values())).asked.plan
    predicted = [one for measured in found.values() for one in measured.predicted]
    by_calibration = sum(abs(one.calibrated_error) <= WITHIN for one in predicted)
    lines = [
        "# Measured against simulated, 2 ranks of one machine",
        "",
        f"`{shlex.join(['python', *sys.argv])}`, commit {(origin['commit'] or 'unknown')[:12]}, "
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {origin['hardware']['cpu']}, {os.cpu_count()} cores.",
        "",
        f"Measured: {plan.rounds} rounds, each the median of {plan.timed_steps} steps, one thread a rank, gloo over "
        "loopback; errors are against the median of rounds. Simulated: the expected step, its computing taken from "
        "steps of the same processes in which nothing is sent (the same step took up to "
        f"{_most_unlike(found):.0%} longer in one process than in another), its messages from this machine's "
        f"calibration. {holds} of {len(rows)} are within {WITHIN:.0%}. From the calibration alone, computing "
        f"included, {by_calibration} of {len(rows)} are. No number is fitted on the steps that are predicted; "
        "what the simulator takes into account was chosen with earlier measurements of the first four models in sight.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows),
        "",
        "## Calibration",
        "",
        "| model | batch a rank | gradients MiB | step alone ms | contention | jitter | least µs | largest |",
        "|---|---|---|---|---|---|---|---|",
        *(_calibrated(name, one) for name, one in found.items()),
        "",
        "## Efficiency",
        "",
        *(f"- {name}, {words}" for name, one in found.items() for words in _efficiencies(one)),
        "",
    ]
    return "\n".join(lines)


def _most_unlike(found: dict[str, Measurement]) -> float:
    """How much longer the step without messages of the slowest start took than that of the fastest one of its case."""
    medians = [
        [median(one.silent_s) for one in timing.rounds if one.silent_s]
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
        + (f"refused, {one.refused}" if one.value is None else f"{one.value:.1%}")
        for one in found.efficiencies
    ]


if __name__ == "__main__":
    main()
