"""Values of a field as people write them: `global_batch=16,32,...,20480`, `optimizer=lars,momentum`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from bigbatch.errors import Problem
from bigbatch.settings import parse_value

_ELLIPSIS = "..."
_MOST_VALUES = 10_000  # a longer list is a slip of the pen
_SAME = 1e-9  # relative: two steps of a sequence that a person wrote as equal


def parsed(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """`FIELD=VALUES` of each --grid; they multiply."""
    grids: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        field, equals, values = text.partition("=")
        if not equals or not field:
            raise Problem(f"'{text}' is no grid: write FIELD=VALUE,VALUE, like global_batch=16,32,...,512")
        if field in grids:
            raise Problem(f"--grid {field} is given twice: put all its values into one")
        if field == "seed":
            raise Problem("seeds are no grid, as results are averaged over them: use --seeds 4")
        grids[field] = _values(text, _pieces(values))
    return grids


def _pieces(text: str) -> list[str]:
    """Split at commas, but not at those inside of brackets, braces and quotes."""
    pieces, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == '"'
        if not quoted:
            depth += (character in "[{") - (character in "]}")
        if character == "," and not quoted and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def _values(text: str, pieces: list[str]) -> tuple[Any, ...]:
    if not any(pieces):
        raise Problem(f"--grid {text} has no values: write some, like global_batch=16,32,...,512")
    if "" in pieces:
        raise Problem(f"--grid {text} has an empty value: remove the comma")
    if _ELLIPSIS not in pieces:
        values = [parse_value(piece) for piece in pieces]
    else:
        at = pieces.index(_ELLIPSIS)
        before, after = pieces[:at], pieces[at + 1 :]
        if not before or len(after) != 1:
            raise Problem(f"--grid {text}: '...' stands between values and the last one, like 16,32,...,512")
        values = _continued([_number(piece, text) for piece in before], _number(after[0], text), text)
    for number, value in enumerate(values):
        if value in values[:number]:
            raise Problem(f"--grid {text} has {value!r} twice: remove one")
    return tuple(values)


def _number(piece: str, text: str) -> float:
    value = parse_value(piece)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Problem(f"--grid {text}: '...' continues numbers, and '{piece}' is none: write all values")
    return value


def _continued(before: list[float], last: float, text: str) -> list[float]:
    """Go on as the values before do, up to the last, which belongs to them even where the steps pass it by.

    One value doubles (or halves, on the way down); two give a ratio; three that are equally far apart, or two of
    which one is zero, give a difference.
    """
    whole = all(isinstance(value, int) for value in [*before, last])
    ratio, difference = _step(before, last, text)
    values = list(before)
    rises = last > before[-1]
    while True:
        # from the first value, so that rounding does not pile up
        count = len(values) - 1
        following = before[0] + count * difference + difference if difference else before[0] * ratio ** (count + 1)
        following = round(following) if whole else float(f"{following:.12g}")
        if following == values[-1] or (following >= last if rises else following <= last):
            return [*values, last]
        values.append(following)
        if len(values) > _MOST_VALUES:
            raise Problem(f"--grid {text} has more than {_MOST_VALUES} values: take larger steps")


def _step(before: list[float], last: float, text: str) -> tuple[float, float]:
    """(ratio, 0) or (1, difference)."""
    if len(before) == 1:
        ratio, difference = (2.0 if last > before[0] else 0.5), 0.0
        fits = before[0] > 0 and last > 0
    elif len(before) == 2 and before[0] * before[1] > 0:
        ratio, difference = before[1] / before[0], 0.0
        fits = True
    else:
        differences = [later - earlier for earlier, later in itertools.pairwise(before)]
        ratios = [later / earlier if earlier else 0.0 for earlier, later in itertools.pairwise(before)]
        ratio, difference = (1.0, differences[0]) if _all_same(differences) else (ratios[0], 0.0)
        fits = _all_same(differences) or (_all_same(ratios) and ratios[0] > 0)
    onward = (before[-1] - before[0] if len(before) > 1 else last - before[0]) * (last - before[-1]) > 0
    if not fits or not onward or (ratio == 1 and not difference):
        raise Problem(f"--grid {text}: '...' does not lead from {before[-1]:g} to {last:g}: write all values")
    return ratio, difference


def _all_same(steps: list[float]) -> bool:
    return all(abs(step - steps[0]) <= _SAME * abs(steps[0]) for step in steps)
