"""`bigbatch show`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from bigbatch import parts
from bigbatch.commands._options import Settings
from bigbatch.commands.list import format_json, print_columns
from bigbatch.errors import DONE


def command(recipe: str, *, settings: Settings = None) -> int:
    """Print every field of a recipe's run: its value, where it comes from, and what it means."""
    from bigbatch.recipes import load_run

    run = load_run(recipe, settings or [])
    print_columns(list(_list_fields(run, load_run(recipe))), ("field", "value", "from"))
    print(f"folder: {run.folder_name}")
    return DONE


def _list_fields(owner: BaseModel, recipe: BaseModel | None, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield name, value, origin and meaning of each field and, below a part, of its options."""
    for name, field in type(owner).model_fields.items():
        value, in_recipe = getattr(owner, name), getattr(recipe, name, field.default)
        if name == "name" and prefix:
            continue
        is_part = isinstance(value, parts.Config)
        short = value.name if is_part else value
        origin = "--set" if value != in_recipe else "default" if short == field.default else "recipe"
        yield f"{prefix}{name}", format_json(short), origin, field.description or ""
        if isinstance(value, BaseModel):
            same_part = in_recipe if isinstance(in_recipe, type(value)) else None
            yield from _list_fields(value, same_part, f"{prefix}{name}.")
