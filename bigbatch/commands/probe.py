"""`bigbatch probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import DataDir, Quiet, Settings
from bigbatch.errors import DONE


def command(
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
