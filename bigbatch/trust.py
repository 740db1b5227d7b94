"""Whose code runs: names that the user typed are trusted, names that come in a file are not.

A dotted name like `mypkg.mod:Thing` runs the code of its module. `parts.find`, the only place where such a name is
imported, refuses it unless the user typed that very name, in Python or on the command line, or trusts its module
(`--trust mypkg.mod`, `bigbatch trust mypkg.mod`). So a run.json or a kept.npz from a stranger runs nothing, and code
that reads a file has nothing to remember.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bigbatch.errors import Problem

# a list with commas in the environment, so that ranks and workers that we start trust what their parent trusts
_VARIABLE = "BIGBATCH_TRUST"
_WORD = r"[^\W\d]\w*"
_DOTTED = re.compile(rf"{_WORD}(\.{_WORD})*(:{_WORD})?")


def trust_modules(names: Iterable[str]) -> None:
    """Trust modules, or single `module:Thing`s, in this process and in those that it starts."""
    for name in names:
        if not _DOTTED.fullmatch(name):
            raise Problem(f"--trust {name} is not a module: name one, like --trust mypkg.mod")
    os.environ[_VARIABLE] = ",".join(dict.fromkeys([*trusted_names(), *names]))


def trust_typed(value: object) -> None:
    """Trust the dotted names in a value that the user typed, in Python or on the command line."""
    if isinstance(value, Mapping):
        value = value.values()
    if isinstance(value, str):
        if _DOTTED.fullmatch(value) and {".", ":"} & set(value):
            trust_modules([value])
    elif isinstance(value, Iterable):
        for item in value:
            trust_typed(item)


def check_trusted(name: str, kind: str) -> None:
    """Refuse a dotted name that came in a file, unless the user trusts its module."""
    module = name.partition(":")[0]
    if not {name, module} & {*trusted_names(), *remembered_modules()}:
        raise Problem(
            f"{kind} '{name}' would run the code of module '{module}', which a file names and you did not: if you "
            f"trust it, add --trust {module}, or in Python call bigbatch.trust.trust_modules(['{module}'])"
        )


def remembered_modules() -> list[str]:
    """Return the modules that the user trusts in every command (`bigbatch trust`)."""
    path = remembered_file()
    try:
        return path.read_text(encoding="utf-8").split() if path.exists() else []
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read ({error}): fix or remove it") from error


def remembered_file() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "bigbatch" / "trusted"


def trusted_names() -> list[str]:
    """Return what this process trusts besides the remembered modules."""
    return [name for name in os.environ.get(_VARIABLE, "").split(",") if name]
