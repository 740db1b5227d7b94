"""The one parser of NAME=VALUE: `--set optimizer.lr=3.2`, `--grid global_batch=16,32,...,512`, and options of parts."""

from __future__ import annotations

import itertools
import json
from typing import Any

from bigbatch.errors import Problem

_ELLIPSIS = "..."
_MOST_VALUES = 10_000  # a longer list is a typing error


def split(setting: str, example: str) -> tuple[str, str]:
    """`optimizer.lr=3.2` gives ("optimizer.lr", "3.2")."""
    name, equals, text = setting.partition("=")
    if not equals or not name:
        raise Problem(f"'{setting}' is not a setting: write FIELD=VALUE, like {example}")
    return name, text


def parse(setting: str, example: str) -> tuple[str, Any]:
    """`optimizer.lr=3.2` gives ("optimizer.lr", 3.2)."""
    name, text = split(setting, example)
    return name, parse_value(text)


def parse_value(text: str) -> Any:
    """JSON where it is JSON (numbers, true, null, lists), else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also of a number with thousands of digits
        return text


def parse_values(text: str) -> tuple[Any, ...]:
    """`lars,momentum` gives ("lars", "momentum"), `16,32,...,128` gives (16, 32, 64, 128).

    Values before '...' are continued up to the last one, which is always included. One value doubles (or halves, if the
    last one is smaller), two give a ratio, three with equal differences, or two of which one is zero, a difference.
    """
    items = _split_at_commas(text)
    if not any(items):
        raise Problem(f"'{text}' has no values: write some, like 16,32,...,512")
    if "" in items:
        raise Problem(f"'{text}' has an empty value: remove the comma")
    values = _continue_numbers(text, items) if _ELLIPSIS in items else [parse_value(item) for item in items]
    for number, value in enumerate(values):
        if value in values[:number]:
            raise Problem(f"'{text}' has {value!r} twice: remove one")
    return tuple(values)


def _split_at_commas(text: str) -> list[str]:
    """Split at commas outside brackets, braces and quotes."""
    items, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == '"'
        if not quoted:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not quoted and depth == 0:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items]


def _continue_numbers(text: str, items: list[str]) -> list[float]:
    at = items.index(_ELLIPSIS)
    if at == 0 or at != len(items) - 2:
        raise Problem(f"'{text}': '...' stands between values and the last one, like 16,32,...,512")
    *given, last = (_parse_number(item, text) for item in items if item != _ELLIPSIS)
    whole = all(isinstance(value, int) for value in [*given, last])
    ratio, difference = _sequence_ratio_and_difference(given, last, text)
    values = list(given)
    while True:
        # from the first value, so that rounding errors do not accumulate
        steps = len(values)
        value = given[0] + steps * difference if difference else given[0] * ratio**steps
        value = round(value) if whole else float(f"{value:.12g}")
        if value == values[-1] or (value >= last if last > given[-1] else value <= last):
            return [*values, last]
        values.append(value)
        if len(values) > _MOST_VALUES:
            raise Problem(f"'{text}' has more than {_MOST_VALUES} values: take larger steps")


def _parse_number(item: str, text: str) -> float:
    value = parse_value(item)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"'{text}': '...' continues numbers, and '{item}' is not a number: write all values")
    return value


def _sequence_ratio_and_difference(given: list[float], last: float, text: str) -> tuple[float, float]:
    """Return (ratio, 0) or (1, difference)."""
    pairs = list(itertools.pairwise(given))
    differences = [later - earlier for earlier, later in pairs]
    ratios = [later / earlier if earlier else 0.0 for earlier, later in pairs]
    ratio, difference = 1.0, 0.0
    if len(given) == 1 and given[0] > 0 and last > 0:
        ratio = 2.0 if last > given[0] else 0.5
    elif len(given) > 1 and _all_equal(differences) and (len(given) > 2 or given[0] * given[1] <= 0):
        difference = differences[0]
    elif len(given) > 1 and _all_equal(ratios) and ratios[0] > 0:
        ratio = ratios[0]
    rises = differences[0] > 0 if differences else last > given[0]
    leads_on = last > given[-1] if rises else last < given[-1]
    if not leads_on or (ratio == 1 and not difference):
        raise Problem(f"'{text}': '...' does not lead from {given[-1]:g} to {last:g}: write all values")
    return ratio, difference


def _all_equal(steps: list[float]) -> bool:
    return all(abs(step - steps[0]) <= 1e-9 * abs(steps[0]) for step in steps)


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
