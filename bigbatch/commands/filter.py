"""`bigbatch filter` and `bigbatch filter compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from bigbatch.commands._options import DataDir, Quiet, Ranks, RunsDir, Settings
from bigbatch.errors import DONE, Problem

command = App(name="filter", help="Drop the training samples that a trained network finds no place for.")

FilterSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="an option of the filter, like drop=0.2, or of the dataset, like dataset.crop=28",
    ),
]


@command.default
def filter_dataset(
    dataset: str,
    *,
    network: Annotated[
        str | None, Parameter(help="a run's folder, a recipe (trained first), weights, mypkg.mod:Class, or features")
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="what is written: kept.npz with its manifest beside it; with --tune, tuned.json")
    ] = None,
    by: Annotated[str, Parameter(help="another filter than 'network': see 'bigbatch list filters'")] = "network",
    settings: FilterSettings = None,
    rounds: Annotated[int, Parameter(help="filter, train on what is left, filter again ...")] = 1,
    ranks: Ranks = 1,
    tune: Annotated[
        bool, Parameter(negative="", help="search the filter's options by what --recipe learns at --global-batch")
    ] = False,
    recipe: Annotated[str | None, Parameter(help="with --tune: the training that judges")] = None,
    global_batch: Annotated[int | None, Parameter(help="with --tune: the batch that it has to bear")] = None,
    trials: Annotated[int, Parameter(help="with --tune: how many settings are tried")] = 20,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Filter a dataset: features of a network, PCA, t-SNE, DBSCAN in each class; what is noise is dropped.

    `bigbatch train RECIPE --set filter=kept.npz` trains on the result.
    """
    if ranks < 1:
        raise Problem(f"--ranks {ranks} makes no sense: use 1 or more")
    common: dict[str, Any] = {
        "network": network,
        "settings": settings or [],
        "runs_dir": runs_dir,
        "data_dir": data_dir,
        "quiet": quiet,
    }
    if tune:
        if network is None or recipe is None or global_batch is None:
            raise Problem("--tune needs --network, --recipe and --global-batch: give all three")
        if by != "network" or rounds != 1 or ranks != 1:
            raise Problem(
                "--tune searches one round of the filter 'network' in one process: leave out --by, --rounds and --ranks"
            )
        out = out or Path("tuned.json")
        from bigbatch.filters import _commands

        found = _commands.tune(dataset, out=out, recipe=recipe, global_batch=global_batch, trials=trials, **common)
        print(f"{out}: {found['best']}")
        return DONE
    if recipe is not None or global_batch is not None:
        raise Problem("--recipe and --global-batch are for --tune: add it, or leave them out")
    out = out or Path("kept.npz")
    from bigbatch.engines import env_world_size
    from bigbatch.filters import _commands
    from bigbatch.launch.processes import run_command_on_ranks

    if ranks > 1 and env_world_size() == 1:
        _commands.refuse_bad_target(out, "kept.npz")
        arguments = [
            *("filter", dataset, "--out", str(out), "--by", by, "--rounds", str(rounds), "--runs-dir", str(runs_dir)),
            *(("--network", network) if network else ()),
            *(("--data-dir", str(data_dir)) if data_dir else ()),
            *(f"--set={setting}" for setting in settings or []),
            *(("--quiet",) if quiet else ()),
        ]
        return run_command_on_ranks(arguments, ranks)
    _commands.filter_dataset(dataset, out=out, filter_name=by, rounds=rounds, **common)
    return DONE


@command.command(name="compare")
def compare_filters(
    results: Annotated[list[Path], Parameter(help="two kept.npz or more")],
    /,
    *,
    recipe: Annotated[str | None, Parameter(help="train this on each of them")] = None,
    settings: Settings = None,
    seeds: Annotated[int, Parameter(help="trainings for each")] = 3,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Table the sizes, overlaps and classes of filters' results, and what a recipe learns from each."""
    from bigbatch.filters import _commands

    _commands.compare(
        results, recipe=recipe, settings=settings or [], seeds=seeds, runs_dir=runs_dir, data_dir=data_dir, quiet=quiet
    )
    return DONE
