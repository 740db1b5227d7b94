"""Optional third-party libraries: imported where they are used; an error says how to install a missing one."""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from typing import Any

from bigbatch.errors import Problem

PACKAGES = {  # module: the package that contains it
    "cleanlab": "cleanlab",
    "faiss": "faiss-cpu",
    "openTSNE": "openTSNE",
    "optuna": "optuna",
    "pacmap": "pacmap",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "umap": "umap-learn",
}


def import_library(module: str, needed_by: str) -> Any:
    """Import a module, or raise a Problem that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        package = PACKAGES.get(name, name)
        raise Problem(
            f"{needed_by} needs {package}, which cannot be imported ({error}): pip install {package}"
        ) from error


def package_version(package: str) -> str | None:
    """The version of an installed package, else None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
