"""`bigbatch probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bigbatch.commands._options import DataDir, Quiet, Settings
from bigbatch.errors import DONE
from bigbatch.output.formatting import print_table

if TYPE_CHECKING:
    from bigbatch.probing import ProbeReport


def command(
    recipe_or_run: str,
    *,
    probes: Annotated[
        list[str] | None,
        Parameter(name="--probe", negative="", help="names, with commas; see 'bigbatch list probes'"),
    ] = None,
    settings: Settings = None,
    options: Annotated[
        list[str] | None, Parameter(name="--option", negative="", help="PROBE.NAME=VALUE, like gradient.layer=head")
    ] = None,
    out: Annotated[Path | None, Parameter(help="also write the measurements as JSON")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Measure gradients, curvature, noise ... of a run at its newest checkpoint, or of a recipe's new model."""
    from bigbatch.artifacts import atomic
    from bigbatch.artifacts.metrics import dump_json
    from bigbatch.engines import env_rank
    from bigbatch.probes import DEFAULT
    from bigbatch.probes.measurement.record import to_json
    from bigbatch.probing import probe_run

    report = probe_run(
        recipe_or_run, names=probes or DEFAULT, settings=settings or (), options=options or (), data_dir=data_dir
    )
    if env_rank() == 0:
        if out:
            atomic.write_text(out, dump_json(to_json(report), indent=2))
        if not quiet:
            _print_report(report)
    return DONE


def _print_report(report: ProbeReport) -> None:
    """A table for each probe: single numbers first, then what it has by layer or by batch."""
    print(f"{report.of} at step {report.step}, global batch {report.global_batch}")
    for name, row in report.probes.items():
        tables = {"tensors": row} if name == "ratio" else {key: value for key, value in row.items() if _is_table(value)}
        single = {} if name == "ratio" else {key: value for key, value in row.items() if key not in tables}
        if single:
            _print_values(name, single)
        for key, value in tables.items():
            _print_values(f"{name}: {key}", value)


def _is_table(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _print_values(title: str, value: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Print one line per key or item; one column per field where lines have fields."""
    labelled = value.items() if isinstance(value, dict) else [("", row) for row in value]
    rows = [(str(label), row if isinstance(row, dict) else {" ": row}) for label, row in labelled]
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    lines = ([label, *(_format_value(row.get(column)) for column in columns)] for label, row in rows)
    print_table(["", *columns], lines, left=("", " "), title=title)


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_format_value(item) for item in value)
    return "–" if value is None else str(value)
