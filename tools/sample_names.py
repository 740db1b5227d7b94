"""Print random names of functions and classes without their bodies: can a PyTorch user guess what each one does?

    python tools/sample_names.py [--count 60] [--seed 14]

Names are shown as they are read in an import: module, class, parameters. Dunder methods and tests are left out.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bigbatch"


def find_names() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            yield from describe(node, module)


def describe(node: ast.stmt, scope: str) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield f"class {scope}.{node.name}({', '.join(ast.unparse(base) for base in node.bases)})"
        for child in node.body:
            yield from describe(child, f"{scope}.{node.name}")
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"def {scope}.{node.name}({ast.unparse(node.args)}){returns}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=14)
    options = parser.parse_args()
    names = list(find_names())
    for number, name in enumerate(random.Random(options.seed).sample(names, options.count), start=1):
        print(f"{number:2}. {name}")


if __name__ == "__main__":
    main()
