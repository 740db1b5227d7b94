"""Numbers from people: finite and in range, or one sentence that names them."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeVar

from pydantic import ValidationError

from bigbatch.errors import Problem

Made = TypeVar("Made")


def positive(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise Problem(f"{name} is {value!r}: give a finite number above 0")


def not_negative(name: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise Problem(f"{name} is {value!r}: give a finite number of at least 0")


def made(kind: Callable[..., Made], **options: Any) -> Made:
    """A pydantic model from a caller's arguments; the first refusal as one sentence."""
    try:
        return kind(**options)
    except ValidationError as error:
        refusal = error.errors()[0]
        name = ".".join(str(step) for step in refusal["loc"]) or getattr(kind, "__name__", "the value")
        raise Problem(f"{name} is {refusal['input']!r}: {refusal['msg'].removeprefix('Value error, ')}") from None
