"""What `bigbatch probe` does, as functions: ask probes of a recipe's fresh model or of a run's newest checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch import engines, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import fit_run
from bigbatch.errors import Problem
from bigbatch.probes import DEFAULT
from bigbatch.probes._standing import Standing
from bigbatch.recipes import load_run
from bigbatch.run import Run
from bigbatch.settings import parse_value


def probe(
    recipe_or_run: str,
    *,
    names: Sequence[str] = DEFAULT,
    settings: Iterable[str] = (),
    options: Iterable[str] = (),
    out: Path | None = None,
    data_dir: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Ask probes (`names`, each may be a list with commas), print a table of each, write JSON into `out`.

    A run's folder is asked at its newest checkpoint, and only read; a recipe's name, mypkg.mod:function or a run.json
    gives a model as training would begin with it. `settings` change the recipe, as in `bigbatch train --set`;
    `options` are PROBE.NAME=VALUE, like gradient.layer=head. Under torchrun every rank calls this; rank 0 prints.
    """
    run, folder = described_or_run(recipe_or_run, settings)
    configs = configured(names, options)
    run = fit_run(run)
    engine = engines.start(run.engine)
    try:
        standing = Standing(run, engine, folder, data_dir)
        try:
            answers = {config.name: standing.ask(config) for config in configs}
        finally:
            standing.close()
        found = {
            "of": str(folder.path) if folder else run.name,
            "step": standing.position.step,
            "samples_seen": standing.position.samples,
            "global_batch": standing.batch.global_batch,
            "seed": run.seed,
            "probes": answers,
        }
        if engine.rank == 0:
            if out:
                _write(out, found)
            if not quiet:
                show(found)
    finally:
        engine.stop()
    return found


def peaks(run_folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Where L(x, g) peaked in each of some trainings with the probe `lipschitz`, by batch (LEGW paper, Fig. 3)."""
    found = []
    for path in run_folders:
        folder = Folder(Path(path))
        rows = [row for row in folder.metrics() if "peak" in row.get("lipschitz", {})]
        if not rows:
            raise Problem(f"{path} has no rows of the probe 'lipschitz': train it with --set 'probes=[\"lipschitz\"]'")
        found.append({"run": str(path), "global_batch": rows[-1]["global_batch"], **rows[-1]["lipschitz"]["peak"]})
    return sorted(found, key=lambda row: row["global_batch"])


def configured(names: Sequence[str], options: Iterable[str]) -> list[parts.Config]:
    """Each probe with the options that are meant for it."""
    wanted = [name for listed in names for name in listed.split(",") if name]
    chosen: dict[str, dict[str, Any]] = {name: {"name": name} for name in wanted}
    for option in options:
        path, equals, text = option.partition("=")
        name, dot, field = path.rpartition(".")
        if not equals or not dot:
            raise Problem(f"'{option}' is not an option of a probe: write PROBE.NAME=VALUE, like gradient.layer=head")
        if name not in chosen:
            raise Problem(f"'{option}' is for '{name}', which is not asked: add --probe {name}, or leave it out")
        chosen[name][field] = parse_value(text)
    if not chosen:
        raise Problem(f"no probe was named: use --probe with some of {', '.join(parts.names('probes'))}")
    return [parts.configure("probes", about) for about in chosen.values()]


def show(found: dict[str, Any]) -> None:
    """A table for each probe: single numbers first, then what it has by layer or by batch."""
    console = Console()
    console.print(f"{found['of']} at step {found['step']}, global batch {found['global_batch']}", highlight=False)
    for name, answer in found["probes"].items():
        single = {key: value for key, value in answer.items() if not _is_table(value)}
        tables = {key: value for key, value in answer.items() if _is_table(value)}
        if name == "ratio":
            tables = {"tensors": answer}
            single = {}
        if single:
            table = Table(title=name, title_justify="left", show_header=False, box=None, pad_edge=False)
            for key, value in single.items():
                table.add_row(key, _text(value))
            console.print(table)
        for key, value in tables.items():
            console.print(_table(f"{name}: {key}", value))


def described_or_run(recipe_or_run: str, settings: Iterable[str]) -> tuple[Run, Folder | None]:
    path = Path(recipe_or_run)
    if not path.is_dir():
        return load_run(recipe_or_run, settings), None
    if list(settings):
        raise Problem(f"{path} is a run, whose settings are what they were: leave --set out, or give a recipe")
    folder = Folder(path)
    return folder.run(), folder


def _is_table(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _table(title: str, value: dict[str, Any] | list[dict[str, Any]]) -> Table:
    rows = value.items() if isinstance(value, dict) else [("", row) for row in value]
    rows = [(label, row if isinstance(row, dict) else {"": row}) for label, row in rows]
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ["", *columns]:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for label, row in rows:
        table.add_row(str(label), *(_text(row.get(column)) for column in columns))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    return "–" if value is None else str(value)


def _write(out: Path, found: dict[str, Any]) -> None:
    """Under a temporary name, then renamed."""
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        temporary.write_text(json.dumps(found, indent=2), encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        raise Problem(f"{out} could not be written ({error.strerror}): choose another --out") from error
