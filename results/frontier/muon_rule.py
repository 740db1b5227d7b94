"""Look for Muon's scaling rule on held-out samples of one problem: which power of the batch multiplies its lr?

    OMP_NUM_THREADS=1 .venv/bin/python results/frontier/muon_rule.py digits_lstm WORK

Muon as tuned at the small batch, at larger batches with lr·kᵉ for several e, weight decay by constant timescale. Judged
on held-out training samples; the test set is not used. The record is muon_rule_PROBLEM.jsonl.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from run import HERE, PROBLEMS, restore, save

from bigbatch.recipes import load_run
from bigbatch.sweeps import Sweep, WorkerOptions, format_mean
from bigbatch.sweeps.config import as_assignments
from bigbatch.sweeps.frontier import tune
from bigbatch.sweeps.search import hold_out

EXPONENTS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)
FACTORS = {"digits_lstm": (16, 32, 64), "mnist_lstm": (8, 64)}
SEEDS = {"digits_lstm": 1, "mnist_lstm": 1}


def main() -> None:
    problem, work = sys.argv[1], Path(sys.argv[2])
    (recipe, settings), config, _, _ = PROBLEMS[problem]
    options, run = WorkerOptions(jobs=1, checkpoint_minutes=3, quiet=False), load_run(recipe, settings)
    muon = tune(run, work / problem, replace(config, methods=["muon"]), options)["muon"]
    tuned = hold_out(run, config.held_out).with_settings(as_assignments(muon))
    record, folder = HERE / f"muon_rule_{problem}.jsonl", work / f"muon_rule_{problem}"
    restore(record, folder)
    variants = {f"lr k^{e:g}": {"scaling_rule.lr_exponent": e} for e in EXPONENTS}
    grids, seeds = {"scale_batch": FACTORS[problem]}, SEEDS[problem]
    sweep = Sweep.create(tuned, folder / "sweep", variants=variants, grids=grids, seeds=seeds, title="muon rule")
    try:
        results = sweep.run(options)
    finally:
        save(record, folder)
    lines = ["| lr | " + " | ".join(f"{factor} times the batch" for factor in FACTORS[problem]) + " |"]
    lines.append("|---" * (len(FACTORS[problem]) + 1) + "|")
    for variant in variants:
        cells = [format_mean(g.values, results.metric) for g in results.groups if g.variant == variant]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    (HERE / f"muon_rule_{problem}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
