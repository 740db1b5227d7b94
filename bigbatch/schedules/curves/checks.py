"""Checks of numbers that callers give: finite and in range, or one sentence that names them."""

from __future__ import annotations

from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bigbatch import parts
from bigbatch.errors import Problem

Model = TypeVar("Model", bound=BaseModel)


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0."""
    if not (isfinite(value) and value > 0):
        raise Problem(f"{name} is {value!r}: give a finite number above 0")


def check_not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0."""
    if not (isfinite(value) and value >= 0):
        raise Problem(f"{name} is {value!r}: give a finite number of at least 0")


def validate_model(kind: type[Model], **options: Any) -> Model:
    """Build a pydantic model from a caller's arguments; a Problem names the first invalid one."""
    try:
        return kind(**options)
    except ValidationError as error:
        raise Problem(parts.explain_validation_error(error, str(kind.model_fields["kind"].default), kind)) from None
