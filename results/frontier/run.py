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

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Stopped
from bigbatch.recipes import load_run
from bigbatch.sweeps import FrontierConfig, WorkerOptions
from bigbatch.sweeps.frontier import create_sweep, tune, write_frontier

HERE = Path(__file__).parent
ACCURACIES = [f"test_accuracy={value}" for value in (0.9, 0.95, 0.97, 0.98, 0.985, 0.988, 0.99)]
LOSSES = [f"train_loss={value}" for value in (0.3, 0.1, 0.03, 0.01)]

# problem -> recipe, settings, batches, target of the figure, tuning, methods in order, (batches, seeds) in order
PROBLEMS = {
    "digits_lstm": (
        ("legw_digits", []),
        FrontierConfig((16, 64, 256, 512, 1024), ["test_accuracy=0.95", *ACCURACIES, *LOSSES], held_out=0.2),
        ["momentum", "lars", "lamb", "adamw", "muon"],
        [((16, 64, 256, 512, 1024), 3)],
    ),
    "mnist_lstm": (
        ("legw_mnist", ["epochs=10", "micro_batch=256", "evaluations_per_epoch=2"]),
        FrontierConfig(
            (128, 1024, 8192, 16384),
            ["test_accuracy=0.98", *ACCURACIES, *LOSSES],
            tuning_epochs=3,
            tuning_fraction=20 / 54,  # 20,000 images
        ),
        ["momentum", "muon", "lars", "adamw", "lamb"],
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("work", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", help="some of the methods", default="")
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
            sweep.run(options)
            save(record, work)
            for path in write_frontier(sweep, tuned).sweep.folder.parent.glob("frontier.*"):
                (HERE / f"{arguments.problem}{path.suffix}").write_bytes(path.read_bytes())
    except Stopped as stopped:
        print(stopped)
    finally:
        save(record, work)


if __name__ == "__main__":
    main()
