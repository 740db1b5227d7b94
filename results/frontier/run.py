"""Train the runs of a frontier that its record does not have yet; the order says what is wanted most.

    OMP_NUM_THREADS=1 timeout 60m .venv/bin/python results/frontier/run.py mnist_lstm WORK --jobs 2

PROBLEM.jsonl is the record: a line per finished run with its description, machine and summary. What is recorded is
never trained again, so that this goes on on any machine. A stopped run goes on from its checkpoint in WORK.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Stopped
from bigbatch.recipes import load_run
from bigbatch.sweeps import Frontier, FrontierConfig, WorkerOptions
from bigbatch.sweeps.frontier import create_sweep, tune, write_frontier

HERE = Path(__file__).parent
ACCURACIES = [f"test_accuracy={value}" for value in (0.9, 0.95, 0.97, 0.98, 0.985, 0.988, 0.99)]
LOSSES = [f"train_loss={value}" for value in (0.3, 0.1, 0.03, 0.01)]

# problem -> recipe, settings, batches, target of the figure, tuning, methods in order, (batches, seeds) in order
PROBLEMS = {
    "digits_lstm": (
        ("legw_digits", []),
        FrontierConfig((16, 64, 256, 512, 1024), ["test_accuracy=0.95", *ACCURACIES, *LOSSES], held_out=0.2),
        ["momentum", "lars", "lamb", "adamw", "muon", "soap"],
        [((16, 64, 256, 512, 1024), 1), ((16, 64, 256, 512, 1024), 3)],
    ),
    "mnist_lstm": (
        ("legw_mnist", ["epochs=10", "micro_batch=256", "evaluations_per_epoch=2"]),
        FrontierConfig(
            (128, 1024, 8192, 16384),
            ["test_accuracy=0.98", *ACCURACIES, *LOSSES],
            tuning_epochs=3,
            tuning_fraction=20 / 54,  # 20,000 images
        ),
        ["momentum", "muon", "lars", "adamw", "lamb", "soap"],
        [((128, 8192), 1), ((128, 1024, 8192, 16384), 1), ((128, 1024, 8192, 16384), 3)],
    ),
}


def restore(record: Path, work: Path) -> None:
    """Write the folders of recorded runs: sweeps find them done."""
    for line in record.read_text().splitlines() if record.exists() else []:
        fields = json.loads(line)
        folder = Folder(work / fields["folder"])
        if not folder.exists():
            folder.path.mkdir(parents=True)
            folder.write("run.json", json.dumps(fields["run"], indent=2))
            folder.write("summary.json", json.dumps(fields["summary"], indent=2))
            folder.status = fields["status"]


def save(record: Path, work: Path) -> None:
    """Write a line for each finished run, without its metrics and checkpoints."""
    lines = []
    for path in sorted(work.glob("*/runs/*")):
        if (folder := Folder(path)).status in ("done", "diverged"):
            run = json.loads((path / "run.json").read_text())
            run.pop("command", None)
            fields = {"folder": str(path.relative_to(work)), "status": folder.status, "run": run}
            lines.append(json.dumps(fields | {"summary": folder.summary().to_dict()}))
    record.write_text("".join(line + "\n" for line in lines))


def write_results(problem: str, found: Frontier) -> None:
    """Write the figure and a page of tables beside the record."""
    for path in found.sweep.folder.parent.glob("frontier.*"):
        (HERE / f"{problem}{path.suffix}").write_bytes(path.read_bytes())
    results, target, runs = found.results, found.sweep.config.targets[0], found.sweep.run_results()
    points = {
        (curve.label, point.global_batch): point
        for curve in results.to_targets
        for point in curve.fit.points
        if curve.target == target
    }
    rows = []
    for group in sorted(results.groups, key=lambda group: (group.variant, group.global_batch)):
        losses = [run.summary["train_loss"] for run in runs if run.label == group.label and run.value is not None]
        point = points.get((group.variant, group.global_batch))
        samples = f"{point.samples:,.0f}" if point and point.samples else "-"
        steps = f"{point.steps:,.0f}" if point and point.steps else "-"
        reached = f"{point.reached} of {point.runs}" if point else "-"
        loss = f"{fmean(losses):.4f}" if losses else "-"
        result = group.describe(results.metric) if group.n else "diverged" if group.diverged else "not run yet"
        rows.append([group.variant, group.global_batch, result, loss, samples, steps, reached])
    head = ["method", "batch", results.metric_label, "training loss", f"samples to {target}", "steps", "reached by"]
    table = [head, ["---"] * len(head), *rows]
    lines = [f"# {problem}", "", f"![samples to the target, and the result]({problem}.png)", ""]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in table]
    lines += ["", "## What the tuning chose, and what the runs say", ""]
    # other targets are in the record, too many for a page
    others = tuple(f"{name}{end}" for name in found.sweep.config.targets[1:] for end in ",:")
    lines += [f"- {note}" for note in (*found.describe(), *results.notes) if not note.startswith(others)]
    (HERE / f"{problem}.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("work", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", help="some of the methods", default="")
    parser.add_argument(
        "--table", action="store_true", help="write figure and tables from the record, and train nothing"
    )
    arguments = parser.parse_args()
    (recipe, settings), config, methods, stages = PROBLEMS[arguments.problem]
    config = replace(config, targets=tuple(dict.fromkeys(config.targets)))
    methods = arguments.methods.split(",") if arguments.methods else methods
    work, record = arguments.work / arguments.problem, HERE / f"{arguments.problem}.jsonl"
    restore(record, work)
    run, options = load_run(recipe, settings), WorkerOptions(arguments.jobs, checkpoint_minutes=3, quiet=False)
    tuned = {}
    try:
        for method in methods:
            tuned |= tune(run, work, replace(config, methods=[method]), options)
            save(record, work)
        for batches, seeds in stages:
            sweep = create_sweep(run, work, replace(config, batches=batches, seeds=seeds), tuned, options)
            if not arguments.table:
                sweep.run(options)
                save(record, work)
            write_results(arguments.problem, write_frontier(sweep, tuned))
    except Stopped as stopped:
        print(stopped)
    finally:
        if not arguments.table:
            save(record, work)


if __name__ == "__main__":
    main()
