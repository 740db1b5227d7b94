"""`bigbatch demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bigbatch.commands._options import Quiet, RunsDir
from bigbatch.errors import DONE, Problem
from bigbatch.output.formatting import format_value, print_table

if TYPE_CHECKING:
    from bigbatch.demo import DemoOptions, DemoReport


def command(
    *,
    runs_dir: RunsDir = Path("runs"),
    out: Annotated[Path, Parameter(help="the page that is written")] = Path("demo.html"),
    tune: Annotated[
        bool, Parameter(negative="", help="repeat how the recipe's lr was chosen at the small batch, and stop")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Show on the embedded digits what a 32 times larger batch costs and what wins it back, in a minute.

    Prints a table and the address of a page. Nothing is downloaded; the runs are the sweep RUNS-DIR/demo.
    """
    from bigbatch.demo import DemoOptions, run_demo
    from bigbatch.demo.page import build_page

    options = DemoOptions(runs_dir, quiet)
    if tune:
        _print_tuning(options)
        return DONE
    if out.is_dir():
        raise Problem(f"--out {out} is a folder: name a file in it, like --out {out / 'demo.html'}")
    report = run_demo(options)
    print_report(report)
    page = build_page(report).write(out)
    print(f"{report.seconds:.0f} s. {page.resolve().as_uri()}")
    return DONE


def print_report(report: DemoReport) -> None:
    """Print the table and the conclusions."""
    from bigbatch.advice.report import format_verdict
    from bigbatch.demo.run import list_conclusions

    rows = [
        [name, found.group.global_batch, f"{found.peak_lr:.3g}", found.describe(), f"{found.steps:,}"]
        for name, found in report.comparison.items()
    ]
    columns = ["", "global batch", "peak lr", "test accuracy", "steps"]
    print_table(columns, rows, left=[""], title="8 x 8 digits, an LSTM of 64 units")
    advice = report.advice
    print(*list_conclusions(report.comparison), sep="\n")
    print(f"advise: {format_verdict(advice)} (grade {advice.grade}: {'; '.join(advice.reasons)})")
    print(f"filter: {report.dropped.describe()}")


def _print_tuning(options: DemoOptions) -> None:
    from bigbatch.demo.run import choose_value, tune
    from bigbatch.recipes.legw_digits import BASELINE_BATCH

    tuned = tune(options)
    rows = [
        [choice.name, format_value(value), group.describe("test_accuracy")]
        for choice, groups in tuned
        for group in groups
        for value in group.settings.values()
    ]
    print_table(["choice", "value", "held-out accuracy"], rows, left=["choice"], title=f"batch {BASELINE_BATCH}")
    chosen = (f"{choice.name} {format_value(choose_value(groups))}" for choice, groups in tuned)
    print(f"chosen: {', '.join(chosen)}")
