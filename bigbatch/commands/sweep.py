"""`bigbatch sweep`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Settings
from bigbatch.errors import DONE


def command(
    recipe_or_sweep: str,
    *,
    grids: Annotated[
        list[str] | None,
        Parameter(
            name="--grid",
            negative="",
            help="FIELD=VALUE,VALUE for any field of the run; several multiply. 16,32,...,512 goes on by its ratio, "
            "1,2,3,...,9 by its difference",
        ),
    ] = None,
    variants: Annotated[
        Path | None, Parameter(help='JSON file {"NAME": {"FIELD": VALUE, ...}, ...}: settings that belong together')
    ] = None,
    seeds: Annotated[int | None, Parameter(help="trainings of each setting; 1 by default")] = None,
    settings: Settings = None,
    searches: Annotated[
        list[str] | None,
        Parameter(
            name="--search", negative="", help="FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B: what Optuna tries"
        ),
    ] = None,
    trials: Annotated[int, Parameter(help="with --search: trainings for each setting of the grid")] = 20,
    held_out: Annotated[float, Parameter(help="with --search: the share of training samples that judges")] = 0.1,
    storage: Annotated[
        str | None,
        Parameter(help="with --search: postgresql://... or mysql://... in place of a journal file in the folder"),
    ] = None,
    out: Annotated[Path | None, Parameter(help="the sweep's folder; sweeps/NAME by default")] = None,
    jobs: Annotated[int, Parameter(help="runs at once, which share the cores; with a launcher, jobs submitted")] = 1,
    launcher: Annotated[
        Literal["slurm", "local"] | None,
        Parameter(help="submit workers with submitit, to a cluster or to this machine"),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=VALUE for submitit, like slurm_partition=gpu, timeout_min=60"),
    ] = None,
    plan: Annotated[bool, Parameter(negative="", help="print runs and estimated time, and run nothing")] = False,
    table: Annotated[bool, Parameter(negative="", help="print the table as far as it is, and run nothing")] = False,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    quiet: Quiet = False,
) -> int:
    """Train a recipe in many settings, with several seeds, and answer what batch and learning rate do to it.

    Name a sweep's folder to go on with it, also on another machine at the same time: no run is done twice.
    """
    from bigbatch.sweeps import _command

    sweep = _command.asked_for(
        recipe_or_sweep,
        settings=settings or [],
        grids=grids or [],
        variants=variants,
        seeds=seeds,
        searches=searches or [],
        trials=trials,
        held_out=held_out,
        storage=storage,
        out=out,
        save=not plan,
        data_dir=data_dir,
        typed=sys.argv[1:],
    )
    if plan:
        _command.show_plan(sweep, jobs, data_dir, storage)
    elif table:
        _command.show(sweep, sweep.write())
    elif launcher:
        from bigbatch.sweeps.launcher import submit

        submit(sweep, launcher, jobs, slurm or [], data_dir, checkpoint_minutes, storage)
    else:
        answers = sweep.work(
            jobs=jobs, data_dir=data_dir, checkpoint_minutes=checkpoint_minutes, storage=storage, quiet=quiet
        )
        _command.show(sweep, answers)
    return DONE
