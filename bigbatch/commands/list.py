"""`bigbatch list`."""

from __future__ import annotations

import inspect
import json
from typing import Any

from pydantic_core import PydanticUndefined, to_jsonable_python

from bigbatch import parts
from bigbatch.errors import DONE, Problem, did_you_mean
from bigbatch.papers.catalog import list_figures, list_papers, read_card, summary


def command(kind: str | None = None, name: str | None = None) -> int:
    """Show the kinds of parts, all parts of a kind (optim, models, recipes ...), or one part with its options.

    'papers' lists what 'bigbatch reproduce' knows, 'papers lars' prints a paper's card: claims, settings, corrections.
    """
    kinds = (*parts.KINDS, "papers")
    if kind is not None and kind not in kinds:
        raise Problem(f"no kind of part called '{kind}'{did_you_mean(kind, kinds)} Kinds: {', '.join(kinds)}")
    if kind == "papers":
        print_papers(name)
    elif kind and name:
        print_part(kind, name)
    elif kind:
        print_columns([(part, parts.summary(kind, part)) for part in parts.names(kind)])
    else:
        rows = [(each, ", ".join(parts.names(each))) for each in parts.KINDS]
        print_columns([*rows, ("papers", ", ".join(list_papers()))])
    return DONE


def print_papers(name: str | None) -> None:
    """Print all papers with their figures, or the card of one paper."""
    if name:
        print(read_card(name))
    else:
        figures = (figure for paper in list_papers() for figure in (paper, *list_figures(paper)))
        print_columns([(figure, summary(figure)) for figure in figures])


def print_part(kind: str, name: str) -> None:
    """Print a part's docstrings, with formula and source, and each option with its default and meaning."""
    part = parts.find(kind, name)
    print(inspect.getdoc(part))
    if kind == "recipes":
        print(f"\n'bigbatch show {name}' prints its fields")
        return
    own = [thing for thing in vars(part).values() if inspect.isclass(thing) and thing.__module__ == part.__name__]
    for documented in own if kind == "optim" else [part.Config]:
        if documented.__doc__ and documented.__doc__ != parts.Config.__doc__:
            print(f"\n{inspect.getdoc(documented)}")
    options = {option: field for option, field in part.Config.model_fields.items() if option != "name"}
    if options:
        print()
        print_columns(
            [(o, format_json(f.default), f.description or "") for o, f in options.items()], ("option", "default")
        )


def format_json(value: Any) -> str:
    """A value as it is written after `--set FIELD=`; an option without a default is required."""
    if value is PydanticUndefined:
        return "required"
    plain = to_jsonable_python(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def print_columns(rows: list[tuple[str, ...]], headings: tuple[str, ...] = ()) -> None:
    """Print rows of text, the last column wrapped."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=bool(headings), pad_edge=False)
    for number in range(len(rows[0])):
        heading = headings[number] if number < len(headings) else "meaning"
        table.add_column(heading, style="bold" if number == 0 else None, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)
