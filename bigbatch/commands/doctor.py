"""`bigbatch doctor`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from bigbatch.commands._options import DataDir
from bigbatch.commands.list import print_columns
from bigbatch.errors import DONE
from bigbatch.libraries import package_version


def command(*, data_dir: DataDir = None) -> int:
    """Print versions, processor, GPUs, threads, data folders, and the extras that are missing with their commands."""
    from bigbatch.artifacts import provenance

    facts = provenance.collect()
    rows = [(name, str(version)) for name, version in facts["packages"].items()]
    rows += [(name, format_fact(value)) for name, value in facts["hardware"].items()]
    rows.append(("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "not set")))
    print_columns([*rows, *_list_data_folders(data_dir), *_list_extras()])
    return DONE


def format_fact(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def _list_data_folders(data_dir: Path | None) -> Iterator[tuple[str, str]]:
    from bigbatch.datasets.reading.download import data_folders

    for folder in data_folders(data_dir):
        found = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else None
        yield f"data in {folder}", "no such folder" if found is None else ", ".join(found) or "nothing"


def _list_extras() -> Iterator[tuple[str, str]]:
    """Yield what each extra of the package lacks here."""
    needed: dict[str, list[str]] = {}
    for requirement in metadata.requires("bigbatch") or []:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        package = re.match(r"[\w.-]+", requirement)
        if extra and package and extra[1] != "dev":
            needed.setdefault(extra[1], []).append(package[0])
    for name, packages in needed.items():
        missing = ", ".join(package for package in packages if package_version(package) is None)
        yield f"extra {name}", f"missing {missing}: pip install 'bigbatch[{name}]'" if missing else "installed"
