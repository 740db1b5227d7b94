"""The command line. torch is imported only by the commands that train, so that help and lists answer at once."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from bigbatch import __version__, parts
from bigbatch.errors import Notice, Problem, Stopped

DONE, BROKEN, WRONG_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 75  # 75: EX_TEMPFAIL, "try again later"

_PYTHONS_SHOW_WARNING = warnings.showwarning

app = App(
    name="bigbatch",
    version=__version__,
    help="Train neural networks at very large batch sizes without losing accuracy.",
)

Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="FIELD=VALUE for any field of the run, like optimizer.lr=3.2"),
]
Ranks = Annotated[int, Parameter(help="processes on this machine, started with torchrun; the result is the same")]
RunsDir = Annotated[Path, Parameter(help="where run folders are made")]
DataDir = Annotated[
    Path | None, Parameter(help="where datasets are looked up; else $BIGBATCH_DATA, then ~/.cache/bigbatch/datasets")
]
CheckpointMinutes = Annotated[float, Parameter(help="between checkpoints, besides the one at each epoch's end")]
Quiet = Annotated[bool, Parameter(negative="", help="print nothing but errors and the result")]


@app.command
def demo(*, runs_dir: RunsDir = Path("runs"), quiet: Quiet = False) -> int:
    """Train the embedded digits at a small and at a 32 times larger batch, and show both accuracies."""
    from bigbatch.demo import show

    show(runs_dir, quiet)
    return DONE


@app.command
def train(
    recipe: str,
    *,
    settings: Settings = None,
    ranks: Ranks = 1,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    fresh: Annotated[bool, Parameter(negative="", help="forget what the run's folder has and start over")] = False,
    quiet: Quiet = False,
) -> int:
    """Train a recipe: a name from 'bigbatch list recipes', mypkg.mod:function, or a run.json.

    An unfinished run goes on from its last checkpoint; a finished one is not run again.
    """
    from bigbatch.launch import on_ranks, run_here_or_under_torchrun
    from bigbatch.recipes import described
    from bigbatch.results import Folder

    run = on_ranks(described(recipe, settings or []), ranks)
    folder = Folder(runs_dir / run.folder_name)
    return run_here_or_under_torchrun(run, folder, ranks, data_dir, checkpoint_minutes, fresh, quiet)


@app.command
def resume(
    folder: Path,
    *,
    ranks: Ranks = 1,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    quiet: Quiet = False,
) -> int:
    """Continue the run in a folder from its last checkpoint, on any number of ranks."""
    from bigbatch.launch import on_ranks, run_here_or_under_torchrun
    from bigbatch.results import Folder

    known = Folder(folder)
    return run_here_or_under_torchrun(
        on_ranks(known.run(), ranks), known, ranks, data_dir, checkpoint_minutes, False, quiet
    )


@app.command
def schedule(
    recipe: str,
    *,
    settings: Settings = None,
    plot: Annotated[Path | None, Parameter(help="also draw it into this file (.png, .svg or .pdf)")] = None,
    points: Annotated[int, Parameter(help="rows to print")] = 20,
) -> int:
    """Print, and draw, the rate and the global batch of a recipe over its epochs, without training anything."""
    from bigbatch.plan import draw, show
    from bigbatch.recipes import described

    run = described(recipe, settings or [])
    show(run, points)
    if plot:
        draw(run, plot)
        print(plot)
    return DONE


filter_app = App(name="filter", help="Drop the training samples that a trained network finds no place for.")
app.command(filter_app)

FilterSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="an option of the filter, like drop=0.2, or of the dataset, like dataset.crop=28",
    ),
]


@filter_app.default
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
    from bigbatch.filters import _commands

    if tune:
        if network is None or recipe is None or global_batch is None:
            raise Problem("--tune needs --network, --recipe and --global-batch: give all three")
        out = out or Path("tuned.json")
        found = _commands.tune(
            dataset,
            network=network,
            recipe=recipe,
            global_batch=global_batch,
            out=out,
            trials=trials,
            settings=settings or [],
            runs_dir=runs_dir,
            data_dir=data_dir,
            quiet=quiet,
        )
        print(f"{out}: {found['best']}")
        return DONE
    if recipe is not None or global_batch is not None:
        raise Problem("--recipe and --global-batch are for --tune: add it, or leave them out")
    _commands.filter_dataset(
        dataset,
        out=out or Path("kept.npz"),
        network=network,
        filter_name=by,
        settings=settings or [],
        rounds=rounds,
        runs_dir=runs_dir,
        data_dir=data_dir,
        quiet=quiet,
    )
    return DONE


@filter_app.command(name="compare")
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


@app.command
def probe(
    recipe_or_run: str,
    *,
    probes: Annotated[
        list[str] | None, Parameter(name="--probe", negative="", help="which, with commas; see 'bigbatch list probes'")
    ] = None,
    settings: Settings = None,
    options: Annotated[
        list[str] | None, Parameter(name="--option", negative="", help="PROBE.NAME=VALUE, like gradient.layer=head")
    ] = None,
    out: Annotated[Path | None, Parameter(help="also write what was found as JSON")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Measure gradients, curvature, noise ... of a run at its newest checkpoint, or of a recipe's fresh model."""
    from bigbatch.probes import DEFAULT, _commands

    _commands.probe(
        recipe_or_run,
        names=probes or DEFAULT,
        settings=settings or [],
        options=options or [],
        out=out,
        data_dir=data_dir,
        quiet=quiet,
    )
    return DONE


@app.command(name="list")
def list_parts(kind: str | None = None) -> int:
    """Show all parts of a kind (optim, models, recipes ...) with one line each; without a kind, the kinds."""
    from rich.console import Console
    from rich.table import Table

    from bigbatch.errors import did_you_mean

    if kind is not None and kind not in parts.KINDS:
        raise Problem(
            f"no kind of part called '{kind}'{did_you_mean(kind, parts.KINDS)} Kinds: {', '.join(parts.KINDS)}"
        )
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name in parts.names(kind) if kind else parts.KINDS:
        table.add_row(name, parts.summary(kind, name) if kind else ", ".join(parts.names(name)))
    Console().print(table)
    return DONE


def main(arguments: list[str] | None = None) -> None:
    """What the `bigbatch` command runs: problems end in one sentence, not in a traceback."""
    sys.path.insert(0, "")  # a user's own parts are found in the folder at hand, as with python -m
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    code = _exit_code(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # a rank has nothing left to do, and torch's threads are sometimes (1 of 6 under load) not ready for the
        # interpreter to go: the process would abort, and torchrun start a finished training again
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _show_warning(message: Warning | str, *details: Any) -> None:
    if isinstance(message, Notice):
        print(f"bigbatch: {message}", file=sys.stderr)
    else:
        _PYTHONS_SHOW_WARNING(message, *details)


def _exit_code(arguments: list[str] | None) -> Any:
    try:
        return app(arguments, result_action="return_value")
    except (Problem, Stopped) as ending:
        return _say(ending)
    except KeyboardInterrupt:
        print("bigbatch: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _say(ending: Problem | Stopped) -> int:
    from bigbatch.launch import posted

    if posted(str(ending)):
        return DONE  # torchrun would start the ranks again; the launcher reads the run's status instead
    print(f"bigbatch: {ending}", file=sys.stderr)
    return STOPPED if isinstance(ending, Stopped) else WRONG_INPUT
