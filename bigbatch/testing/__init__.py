"""Check a part of your own against the contract of its kind, as bigbatch checks its own parts.

    from bigbatch.testing import check_part

    def test_my_optimizer():
        check_part("optim", "mypkg.sign")

`find_checks(kind)` gives the checks one by one, for `pytest.mark.parametrize`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from bigbatch import parts
from bigbatch.libraries import is_installed
from bigbatch.testing.common import CheckedPart, check_config, check_docstring

Check = Callable[[CheckedPart], None]

__all__ = ["CheckedPart", "check_part", "find_checks"]


def check_part(kind: str, part: str | ModuleType, options: Mapping[str, Any] | None = None) -> None:
    """Raise an AssertionError where a part breaks the contract of its kind.

    `part` is a name as in a run, like "lars" or "mypkg.mod", or the module itself; `options` are those of its Config
    that have no default.
    """
    name = part if isinstance(part, str) else part.__name__
    checked = CheckedPart(kind, name, dict(options or {}))
    for check in find_checks(kind):
        try:
            check(checked)
        except AssertionError as error:
            broken = check.__name__.removeprefix("check_").replace("_", " ")
            raise AssertionError(
                f"{parts.KINDS[kind]} '{name}' breaks its contract: {broken} {error}".rstrip()
            ) from error


def find_checks(kind: str) -> list[Check]:
    """The checks of a kind: those of every part, and its own."""
    if kind not in parts.KINDS:
        raise ValueError(f"'{kind}' is not a kind of part: use one of {', '.join(parts.KINDS)}")
    checks: list[Check] = [check_docstring, check_config]
    if is_installed(f"bigbatch.testing.{kind}"):
        own = vars(importlib.import_module(f"bigbatch.testing.{kind}"))
        checks += [own[name] for name in own if name.startswith("check_")]
    return checks
