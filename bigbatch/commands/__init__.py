"""The commands: a file each, whose `command` is a function or, where it has subcommands, a cyclopts App.

torch is imported inside of those functions only, so that help and lists answer at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def find_all() -> dict[str, Any]:
    """Every command by its name."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return {name: importlib.import_module(f"{__name__}.{name}").command for name in names}
