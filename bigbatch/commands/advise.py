"""`bigbatch advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import DataDir, Quiet, Settings
from bigbatch.errors import DONE, Problem


def command(
    recipe_or_run: str,
    *,
    settings: Settings = None,
    out: Annotated[Path, Parameter(help="folder for advise.html and advise.json")] = Path("advise"),
    verify: Annotated[
        bool, Parameter(negative="", help="also train at B and at 2B from one point, and compare the losses")
    ] = False,
    branch: Annotated[
        bool, Parameter(negative="", help="also find the critical batch by training at 1, 2, 4 ... times the batch")
    ] = False,
    tolerance: Annotated[
        float | None,
        Parameter(help="of a branch's loss; default: what the present batch gains in the second half of its samples"),
    ] = None,
    json: Annotated[bool, Parameter(negative="", help="print the answer as JSON instead of the table")] = False,
    batches: Annotated[str | None, Parameter(help="batches to time, with commas, like 32,64,128,256,512")] = None,
    seconds: Annotated[float, Parameter(help="about how long to measure; longer is more certain")] = 120.0,
    steps: Annotated[int | None, Parameter(help="steps to train before measuring; default: warm-up and 200")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Say which batch reaches a loss fastest, from the gradient's noise and the time of steps on this machine.

    A recipe is trained through its warm-up first, a run's folder is measured at its newest checkpoint and only read.
    """
    sizes = _parse_batches(batches)
    from bigbatch.advice import advise_run
    from bigbatch.probing import load_recipe_or_folder

    run, folder = load_recipe_or_folder(recipe_or_run, settings or [])
    options = {"seconds": seconds, "steps": steps, "batches": sizes, "verify": verify, "quiet": quiet}
    advice = advise_run(run, folder, data_dir=data_dir, branch=branch, tolerance=tolerance, **options)
    if json:
        print(advice.to_json())
    else:
        advice.show()
    page = advice.write(out)  # after the answer, which a full disk must not hide
    if not json:
        print(page)
    return DONE


def _parse_batches(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise Problem(
            f"--batches {text} is not a list of numbers: write it with commas, like 32,64,128,256,512"
        ) from error
