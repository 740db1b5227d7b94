"""`bigbatch report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bigbatch.commands._options import Track
from bigbatch.errors import DONE


def command(
    runs_or_sweeps: Annotated[list[Path], Parameter(help="folders of runs or sweeps, or of several runs")],
    /,
    *,
    out: Annotated[Path, Parameter(help="the page that is written")] = Path("report.html"),
    compare: Annotated[bool, Parameter(negative="", help="two runs side by side, with what differs")] = False,
    track: Track = None,
) -> int:
    """Write one self-contained page about runs and sweeps, in whatever state they are.

    With --track, also mirror the metrics of runs that were trained before.
    """
    from bigbatch import report, trackers
    from bigbatch.launch.mirrors import mirror_metrics

    trackers.check_installed(track or ())
    path = report.compare_runs(runs_or_sweeps, out) if compare else report.report(runs_or_sweeps, out)
    print(path.resolve().as_uri())
    if track:
        for folder in report.find_run_folders(runs_or_sweeps):
            with mirror_metrics(folder, track):
                pass
    return DONE
