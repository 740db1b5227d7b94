"""The command line. torch is imported only by the commands that train, so that help and lists answer at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from bigbatch import __version__, parts
from bigbatch.errors import Problem, Stopped

DONE, BROKEN, WRONG_INPUT, DIVERGED, STOPPED = 0, 1, 2, 3, 75  # 75: EX_TEMPFAIL, "try again later"

app = App(
    name="bigbatch",
    version=__version__,
    help="Train neural networks at very large batch sizes without losing accuracy.",
)

Settings = Annotated[
    list[str] | None, Parameter(name="--set", help="FIELD=VALUE for any field of the run, like optimizer.lr=3.2")
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
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> Any:
    try:
        return app(arguments, result_action="return_value")
    except (Problem, Stopped) as ending:
        return _say(ending)
    except KeyboardInterrupt:
        print("bigbatch: interrupted", file=sys.stderr)
        return 130


def _say(ending: Problem | Stopped) -> int:
    from bigbatch.launch import posted

    if posted(str(ending)):
        return DONE  # torchrun would start the ranks again; the launcher reads the run's status instead
    print(f"bigbatch: {ending}", file=sys.stderr)
    return STOPPED if isinstance(ending, Stopped) else WRONG_INPUT
