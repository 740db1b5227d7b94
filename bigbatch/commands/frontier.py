"""`bigbatch frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Settings, Targets
from bigbatch.errors import DONE, Problem


def command(
    recipe: str,
    *,
    batches: Annotated[str, Parameter(help="global batches like 128,1024,...,8192; the smallest is the recipe's")],
    targets: Targets = None,
    methods: Annotated[str | None, Parameter(help="some of the methods, like momentum,lars; all by default")] = None,
    seeds: Annotated[int, Parameter(help="trainings of each method and batch", validator=Number(gte=1))] = 1,
    settings: Settings = None,
    tuning_epochs: Annotated[
        float | None, Parameter(help="epochs of a tuning trial; the recipe's by default", validator=Number(gt=0))
    ] = None,
    tuning_fraction: Annotated[
        float, Parameter(help="fraction of the training samples of a tuning trial", validator=Number(gt=0, lte=1))
    ] = 1.0,
    held_out: Annotated[
        float, Parameter(help="fraction of the training samples to judge trials by", validator=Number(gt=0, lt=1))
    ] = 0.1,
    out: Annotated[Path | None, Parameter(help="the folder; frontiers/NAME by default")] = None,
    jobs: Annotated[int, Parameter(help="runs at once, which share the cores", validator=Number(gte=1))] = 1,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    quiet: Quiet = False,
) -> int:
    """Compare how far methods can raise the batch: samples to a target, and the result after all epochs.

    Learning rate and weight decay of each method are tuned at the recipe's batch alone, on held-out samples and with as
    many trials for each; larger batches follow by the method's scaling rule. Run it again to resume it, or with more
    seeds, methods or batches to extend it.
    """
    from bigbatch import settings as parsing
    from bigbatch.commands.sweep import print_results
    from bigbatch.recipes import load_run
    from bigbatch.sweeps import METHODS, FrontierConfig, WorkerOptions, run_frontier

    if not targets:
        raise Problem("a frontier counts samples to a target: give one, like --target test_accuracy=0.98")
    config = FrontierConfig(
        batches=parsing.parse_values(batches),
        targets=targets,
        methods=methods.split(",") if methods else tuple(METHODS),
        seeds=seeds,
        tuning_epochs=tuning_epochs,
        tuning_fraction=tuning_fraction,
        held_out=held_out,
    )
    run = load_run(recipe, settings or [])
    folder = out or Path("frontiers") / run.name
    found = run_frontier(run, folder, config, WorkerOptions(jobs, data_dir, checkpoint_minutes, quiet=quiet))
    print_results(found.sweep, found.results)
    for sentence in found.describe():
        print(sentence)
    print(f"{folder}: frontier.png, .svg, .csv; tuning/, sweep/")
    return DONE
