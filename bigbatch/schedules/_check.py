"""Numbers from people: finite and in range, or one sentence that names them."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bigbatch import parts
from bigbatch.errors import Problem

Model = TypeVar("Model", bound=BaseModel)


def positive(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise Problem(f"{name} is {value!r}: give a finite number above 0")


def not_negative(name: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise Problem(f"{name} is {value!r}: give a finite number of at least 0")


def made(kind: type[Model], **options: Any) -> Model:
    """A pydantic model from a caller's arguments; the first refusal as one sentence."""
    try:
        return kind(**options)
    except ValidationError as error:
        raise Problem(parts.explain(error, str(kind.model_fields["kind"].default), kind)) from None
