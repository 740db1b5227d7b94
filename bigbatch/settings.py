"""The one parser of NAME=VALUE: `--set optimizer.lr=3.2`, `--grid`, and options of parts."""

from __future__ import annotations

import json
from typing import Any

from bigbatch.errors import Problem


def parse(setting: str, example: str) -> tuple[str, Any]:
    """`optimizer.lr=3.2` gives ("optimizer.lr", 3.2)."""
    name, equals, text = setting.partition("=")
    if not equals or not name:
        raise Problem(f"'{setting}' is not a setting: write FIELD=VALUE, like {example}")
    return name, parse_value(text)


def parse_value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, null, lists), else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def assign(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set the field that a dotted name reaches, making the parts on the way; a new budget replaces the old one."""
    path = name.split(".")
    *parents, last = path
    for depth, parent in enumerate(parents):
        child = fields.get(parent)
        if isinstance(child, str):
            child = {"name": child}
        if child is None:
            child = {}
        if not isinstance(child, dict):
            raise Problem(
                f"'{name}={value}': '{'.'.join(path[: depth + 1])}' is {child!r} and has no fields: set it as a whole"
            )
        fields[parent] = child
        fields = child
    fields[last] = value
    if last == "epochs" and not parents:
        fields["steps"] = None
    if last == "steps" and not parents:
        fields["epochs"] = None
