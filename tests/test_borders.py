"""Packages keep their private names to themselves; the direction of imports is checked by lint-imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import bigbatch

PACKAGE = Path(bigbatch.__file__).parent


def imports_of_private_names() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        own_package = (*path.relative_to(PACKAGE).parts, "")[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("bigbatch"):
                continue
            for alias in node.names:
                names = [*node.module.split(".")[1:], alias.name]
                private = any(name.startswith("_") and not name.startswith("__") for name in names)
                if private and names[0] != own_package:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno} from {node.module} import {alias.name}"


def test_no_private_name_is_imported_from_another_package():
    assert list(imports_of_private_names()) == []


def test_the_top_of_the_package_stays_small():
    assert len(list(PACKAGE.glob("*.py"))) <= 12
