"""Results of probes: dataclasses whose fields can also be read by name, as in `found["exact"]`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar


class Record:
    """Base of the dataclasses that probes and advice return. A number that is not finite becomes None."""

    OMIT_IF_NONE: ClassVar[tuple[str, ...]] = ()  # fields that JSON has only where they have a value

    def __post_init__(self) -> None:
        for name in self._names():
            value = getattr(self, name)
            if isinstance(value, float | list | tuple):
                object.__setattr__(self, name, to_json(value) if _holds_numbers(value) else value)

    def __getitem__(self, name: str) -> Any:
        if name not in self._names():
            raise KeyError(name)
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def keys(self) -> list[str]:
        """Names of the fields that have a value, or whose None has a meaning."""
        return [name for name in self._names() if name not in self.OMIT_IF_NONE or getattr(self, name) is not None]

    @classmethod
    def _names(cls) -> list[str]:
        return [field.name for field in fields(cls)]  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Measurement(Record):
    """A result that depends on the model's mode, and on what BatchNorm and dropout do in it."""

    OMIT_IF_NONE: ClassVar[tuple[str, ...]] = ("batchnorm", "dropout")

    mode: str  # train, eval or mixed
    batchnorm: str | None = None  # only of models that have it
    dropout: str | None = None


def to_json(value: Any) -> Any:
    """The same value as JSON has it: records as dicts, tuples as lists, what is not finite as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | Record):
        return {key: to_json(value[key]) for key in value.keys()}  # noqa: SIM118
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def _holds_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_holds_numbers(item) for item in value)
    return value is None or isinstance(value, float | int)
