"""Libraries that only some filters need: imported when they are used, and missed in one sentence."""

from __future__ import annotations

import importlib
import importlib.util
from importlib import metadata
from typing import Any

from bigbatch.errors import Problem

PACKAGES = {  # the module, and the package that brings it
    "cleanlab": "cleanlab",
    "faiss": "faiss-cpu",
    "openTSNE": "openTSNE",
    "optuna": "optuna",
    "pacmap": "pacmap",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "umap": "umap-learn",
}


def library(module: str, wanted_by: str) -> Any:
    """The module, or a Problem that says who wants it and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        package = PACKAGES.get(name, name)
        raise Problem(
            f"{wanted_by} needs {package}, which cannot be imported ({error}): pip install {package}"
        ) from error


def version(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
