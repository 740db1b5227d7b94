"""`bigbatch sweep`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet, Settings, Targets
from bigbatch.errors import DONE, FAILED, Problem
from bigbatch.output.formatting import format_duration, format_number, format_range, print_table

if TYPE_CHECKING:
    from bigbatch.sweeps import SearchConfig, SeedGroup, Sweep, SweepResults, WorkerOptions

_MOST_GROUPS_PRINTED = 40


def command(
    recipe_or_sweep: str,
    *,
    grids: Annotated[
        list[str] | None,
        Parameter(
            name="--grid",
            negative="",
            help="FIELD=VALUE,VALUE for any field of the run; several multiply. 16,32,...,512 continues by its ratio, "
            "1,2,3,...,9 by its difference",
        ),
    ] = None,
    variants: Annotated[
        Path | None, Parameter(help='JSON file {"NAME": {"FIELD": VALUE, ...}, ...}: settings that belong together')
    ] = None,
    seeds: Annotated[
        int | None, Parameter(help="trainings of each setting; 1 by default", validator=Number(gte=1))
    ] = None,
    settings: Settings = None,
    targets: Targets = None,
    searches: Annotated[
        list[str] | None,
        Parameter(
            name="--search",
            negative="",
            help="FIELD=LOW..HIGH, FIELD=LOW..HIGH:log or FIELD=A,B: the values that Optuna chooses from",
        ),
    ] = None,
    trials: Annotated[
        int, Parameter(help="with --search: trainings for each setting of the grid", validator=Number(gte=1))
    ] = 20,
    held_out: Annotated[
        float,
        Parameter(help="with --search: fraction of the training samples to test on", validator=Number(gt=0, lt=1)),
    ] = 0.1,
    storage: Annotated[
        str | None,
        Parameter(help="with --search: postgresql://... or mysql://... instead of a journal file in the folder"),
    ] = None,
    out: Annotated[Path | None, Parameter(help="the sweep's folder; sweeps/NAME by default")] = None,
    jobs: Annotated[
        int,
        Parameter(help="runs at once, which share the cores; with a launcher, jobs submitted", validator=Number(gte=1)),
    ] = 1,
    launcher: Annotated[
        Literal["slurm", "local"] | None,
        Parameter(help="submit workers with submitit, to a cluster or to this machine"),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=VALUE for submitit, like slurm_partition=gpu, timeout_min=60"),
    ] = None,
    plan: Annotated[bool, Parameter(negative="", help="print runs and estimated time, and run nothing")] = False,
    table: Annotated[bool, Parameter(negative="", help="print the table so far, and run nothing")] = False,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    quiet: Quiet = False,
) -> int:
    """Train a recipe in many settings with several seeds, and find out how batch and learning rate change the result.

    Name a sweep's folder to resume it, also on another machine at the same time: no run is trained twice.
    """
    from bigbatch.recipes import load_run
    from bigbatch.sweeps import Sweep, SweepConfig, WorkerOptions
    from bigbatch.sweeps.config import parse_grids, read_variants

    options = WorkerOptions(jobs, data_dir, checkpoint_minutes, storage, quiet)
    if Sweep.is_sweep(recipe_or_sweep):
        if settings or grids or variants or searches or out:
            raise Problem(
                f"{recipe_or_sweep} is a sweep with its own settings: name the recipe again, with --out "
                f"{recipe_or_sweep}, to add runs"
            )
        sweep = Sweep.open(recipe_or_sweep)
        changes = {"seeds": seeds, "targets": tuple(targets) if targets else None}
        if changes := {name: value for name, value in changes.items() if value is not None}:
            sweep = Sweep(sweep.folder, sweep.config.model_copy(update=changes))
            sweep.check(data_dir)
    elif Path(recipe_or_sweep).is_dir():
        raise Problem(f"{recipe_or_sweep} is not a sweep, it has no sweep.json: name the folder of one, or a recipe")
    else:
        run = load_run(recipe_or_sweep, settings or [])
        config = SweepConfig.build(
            run,
            grids=parse_grids(grids or []),
            variants=read_variants(variants) if variants else {},
            seeds=seeds or 1,
            targets=targets or (),
            search=_parse_search(searches or [], trials, held_out, storage, seeds),
            command=("bigbatch", *sys.argv[1:]),
        )
        sweep = Sweep(out or Path("sweeps") / run.name, config)
        sweep.check(data_dir)
    if plan:
        _print_plan(sweep, options)
        return DONE
    sweep.save()
    if launcher:
        from bigbatch.sweeps.cluster import submit

        submitted = submit(sweep, launcher, options, slurm or [])
        print(f"{len(submitted)} workers submitted: {', '.join(job.job_id for job in submitted)}")
        print(f"'bigbatch sweep {sweep.folder} --table' prints their results so far")
    else:
        results = sweep.write_results() if table else sweep.run(options)
        print_results(sweep, results)
        if not table and any(group.failed for group in results.groups):
            return FAILED
    return DONE


def _parse_search(
    searches: Sequence[str], trials: int, held_out: float, storage: str | None, seeds: int | None
) -> SearchConfig | None:
    from bigbatch.sweeps import SearchConfig, parse_ranges
    from bigbatch.sweeps.search import hide_password

    if not searches:
        if storage:
            raise Problem("--storage is where --search keeps its trials: add one, or leave it out")
        return None
    if seeds is not None and seeds > 1:
        raise Problem("a search trains every trial once: leave out --seeds, and confirm its best with --seeds 3")
    public = hide_password(storage) if storage else None
    return SearchConfig(ranges=parse_ranges(searches), trials=trials, held_out=held_out, storage=public)


def _print_plan(sweep: Sweep, options: WorkerOptions) -> None:
    """Print how many runs there are, how many are left, and about how long they take, from a few seconds of each."""
    from bigbatch.sweeps.plan import estimate_time

    left, total = sweep.points_left(options.storage)
    if not left:
        print(f"{total} runs, none left")
        return
    estimate = estimate_time(left, sweep.folder, options)
    rows = [
        [
            str(kind.global_batch),
            str(kind.runs),
            f"{'at least ' if kind.cut else ''}{kind.seconds_per_step:.4g}",
            format_duration(kind.seconds_per_run),
            format_duration(kind.runs * kind.seconds_per_run),
        ]
        for kind in estimate.kinds
    ]
    columns = ["global batch", "runs left", "seconds per step", "one run", "all of them"]
    print_table(columns, rows)
    seconds, jobs, threads = estimate.seconds(options.jobs), options.jobs, options.threads_per_run
    about = "at least" if any(kind.cut for kind in estimate.kinds) else "about"
    print(
        f"{total} runs, {len(left)} left: {about} {format_duration(seconds)} with {jobs} job{'s'[: jobs > 1]} of "
        f"{threads} thread{'s'[: threads > 1]}, timed on this machine as busy as it was just now"
        + (", one run at a time: several slow each other down" if jobs > 1 else "")
    )


def print_results(sweep: Sweep, results: SweepResults) -> None:
    """Print the table, then the conclusions in sentences."""
    from bigbatch.sweeps import format_metric

    metric = results.metric
    rows = [
        [
            group.label,
            str(group.global_batch),
            f"{group.lr:g}",
            _describe_group(group, metric),
            "none"
            if group.low is None
            else f"{format_metric(group.low, metric)} to {format_metric(group.high, metric)}",
        ]
        for group in _groups_to_print(results)
    ]
    columns = ["setting", "batch", "lr", f"{results.metric_label} (n)", "95 % interval"]
    print_table(columns, rows, left=["setting"], title=sweep.config.title)
    _print_samples_to_targets(results)
    notes = [(curve.label, curve.note) for curve in results.curves]
    notes += [(preferred.label, preferred.note) for preferred in results.preferred]
    for label, note in notes:
        print(f"{label}: {note}" if len(results.curves) > 1 else note)
    for sentence in (*results.edge_warnings, *results.notes):
        print(sentence)
    print(f"{sweep.folder}: table.csv, results.json, runs/")


def _print_samples_to_targets(results: SweepResults) -> None:
    """Print samples and steps until each target was reached, for each curve over batches."""
    columns = ["setting", "batch", "samples", "95 % interval", "steps", "fit", "reached"]
    for target in dict.fromkeys(curve.target for curve in results.to_targets):
        rows = [
            [
                curve.label,
                str(point.global_batch),
                "-" if point.samples is None else format_number(point.samples),
                "none" if point.low is None else format_range(point.low, point.high),
                "-" if point.steps is None else format_number(point.steps),
                "-" if point.fitted is None else format_number(point.fitted),
                f"{point.reached} of {point.runs}",
            ]
            for curve in results.to_targets
            if curve.target == target
            for point in curve.fit.points
        ]
        print_table(columns, rows, left=["setting"], title=f"samples to {target}")


def _groups_to_print(results: SweepResults) -> Sequence[SeedGroup]:
    """Return all groups, or the best ones if there are many."""
    if len(results.groups) <= _MOST_GROUPS_PRINTED:
        return results.groups
    done = [group for group in results.groups if group.mean is not None]
    lower_is_better = results.metric == "test_perplexity"
    return sorted(done, key=lambda group: group.mean or 0.0, reverse=not lower_is_better)[:_MOST_GROUPS_PRINTED]


def _describe_group(group: SeedGroup, metric: str) -> str:
    if group.n:
        return group.describe(metric)
    return "diverged" if group.diverged else "failed" if group.failed else "not finished yet"
