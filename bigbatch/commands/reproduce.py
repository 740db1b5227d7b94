"""`bigbatch reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.commands._options import CheckpointMinutes, DataDir, Quiet
from bigbatch.errors import DONE, Problem

if TYPE_CHECKING:
    from bigbatch.papers.reproduction import Reproduction
    from bigbatch.sweeps import WorkerOptions


def command(
    figures: Annotated[list[str], Parameter(help="a paper, lars, or a figure of it, lars.table1", negative="")],
    *,
    scale: Annotated[
        Literal["smoke", "laptop", "paper"],
        Parameter(help="smoke: seconds, no download; laptop: reduced, hours on two cores; paper: its full setting"),
    ] = "smoke",
    out: Annotated[Path, Parameter(help="where results are kept; what is done there is not done again")] = Path(
        "reproduced"
    ),
    jobs: Annotated[int, Parameter(help="runs at once, which share the cores", validator=Number(gte=1))] = 1,
    plan: Annotated[bool, Parameter(negative="", help="print tasks, what is done, and hours; run nothing")] = False,
    draw: Annotated[bool, Parameter(negative="", help="draw from what is done so far; run nothing")] = False,
    data_dir: DataDir = None,
    checkpoint_minutes: CheckpointMinutes = 10.0,
    quiet: Quiet = False,
) -> int:
    """Reproduce tables and figures of the papers, with their numbers beside ours; 'bigbatch list papers' shows all.

    An interrupted reproduction is resumed by the same command, also on another machine at the same time.
    """
    from bigbatch.papers.catalog import select_figures
    from bigbatch.papers.reproduction import reproduce, write_index
    from bigbatch.sweeps import WorkerOptions

    names = list(dict.fromkeys(name for wanted in figures for name in select_figures(wanted)))
    if not names:
        raise Problem("no figure was named: use a paper like lars, or a figure like lars.table1")
    options = WorkerOptions(jobs, data_dir, checkpoint_minutes, quiet=quiet)
    if plan:
        _print_plan(names, scale, out, options)
        return DONE
    for found in reproduce(names, scale, out, options, run=not draw):
        _print_reproduction(found, out)
    print(write_index(out))
    return DONE


def _print_plan(
    names: list[str], scale: Literal["smoke", "laptop", "paper"], out: Path, options: WorkerOptions
) -> None:
    from bigbatch.output.formatting import format_duration, print_table
    from bigbatch.papers.plan import plan

    plans, hours = plan(names, scale, out, options)
    rows = [
        [
            one.figure,
            str(one.tasks),
            str(one.done),
            *(format_duration(3600 * value) if value else "–" for value in (one.hours_done, one.hours_left)),
        ]
        for one in plans
    ]
    columns = ["figure", "tasks", "done", "time so far", "time left"]
    print_table(columns, rows, left=["figure"], title=f"scale {scale}")
    print(
        f"about {format_duration(3600 * hours)} left, one training at a time with {options.threads_per_run} threads, "
        "tasks that figures share counted once; timed on this machine as busy as it was just now"
    )


def _print_reproduction(found: Reproduction, out: Path) -> None:
    from bigbatch.output.formatting import print_table

    print(f"{found.figure}: {found.title}")
    for table in found.tables:
        rows = [[str(cell) for cell in row] for row in table["rows"]]
        print_table(table["columns"], rows, left=table["columns"][:1], title=table["title"] or None)
    for claim in found.claims:
        print(f"  {({True: 'held', False: 'did not hold', None: 'not decided'})[claim['held']]}: {claim['text']}")
    print(f"  {found.verdict} ({found.scale}); {out / found.scale / 'figures' / found.figure}\n")
