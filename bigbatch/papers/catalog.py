"""The papers and their figures: a folder is a paper, a file in it a figure or a table."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from bigbatch.errors import Problem, did_you_mean

if TYPE_CHECKING:
    from bigbatch.papers.drawing import Drawing
    from bigbatch.papers.records import Results, Scale
    from bigbatch.papers.tasks import Cases

_HERE = Path(__file__).parent
_SHARED = ("__init__", "settings")


class Figure(Protocol):
    """A figure or a table of a paper."""

    PAPER: Mapping[Any, Any]  # the paper's numbers, by case where it prints them

    def runs(self, scale: Scale) -> Cases: ...

    def draw(self, results: Results) -> Drawing: ...


def list_papers() -> list[str]:
    return sorted(path.parent.name for path in _HERE.glob("*/card.md"))


def list_figures(paper: str) -> list[str]:
    """Return `lars.table1` ..., in the order of the paper's numbers."""
    names = [path.stem for path in (_HERE / paper).glob("*.py") if path.stem not in _SHARED]
    return [f"{paper}.{name}" for name in sorted(names, key=_natural_order)]


def _natural_order(name: str) -> tuple[str, int, str]:
    word = name.rstrip("0123456789_")
    number = name[len(word) :].partition("_")[0]
    return word, int(number or 0), name


def select_figures(wanted: str) -> list[str]:
    """Return the figures of a paper, `lars`, or one of them, `lars.table1`."""
    paper, dot, _ = wanted.partition(".")
    _check_paper(paper)
    figures = list_figures(paper)
    if dot and wanted not in figures:
        raise Problem(f"no figure called '{wanted}'{did_you_mean(wanted, figures)} It has: {', '.join(figures)}")
    return [wanted] if dot else figures


def find_figure(name: str) -> Figure:
    return cast(Figure, importlib.import_module(f"{__package__}.{name}"))


def summary(name: str) -> str:
    """Return the first line of a paper's or a figure's docstring, read without importing it."""
    path = _HERE / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def read_card(paper: str) -> str:
    _check_paper(paper)
    return (_HERE / paper / "card.md").read_text(encoding="utf-8")


def _check_paper(name: str) -> None:
    if name not in list_papers():
        raise Problem(f"no paper called '{name}'{did_you_mean(name, list_papers())} 'bigbatch list papers' shows all")
