"""The filter settings on the page, and the eps that they lead to by the rules of the network filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bigbatch import filters, parts
from bigbatch.viewer.requests import RequestError

_OPTIONS = {"mode", "min_samples", "drop", "per_class"}


class FilterSettings(BaseModel):
    """How noise is decided; `eps` has one entry per class and is an input for mode `manual` only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: Literal["fraction", "paper", "manual"]
    min_samples: int = Field(ge=1)
    drop: float = Field(ge=0, lt=1)
    per_class: bool = True
    eps: tuple[float | None, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, Any], classes: Sequence[str]) -> Self:
        """Return the settings that a filter was made with."""
        given = options["eps"] if isinstance(options["eps"], dict) else dict.fromkeys(classes, options["eps"])
        return cls(**{name: options[name] for name in _OPTIONS}, eps=tuple(given.get(name) for name in classes))

    def to_options(self, classes: Sequence[str]) -> dict[str, Any]:
        """Return the filter's options that are equal to these settings."""
        eps = {classes[index]: eps for index, eps in self.eps_by_class().items()}
        return self.model_dump(include=_OPTIONS) | {"eps": eps if self.mode == "manual" else None}

    def eps_by_class(self) -> dict[int, float]:
        """Return the eps of each class that has one."""
        return {index: eps for index, eps in enumerate(self.eps) if eps is not None}

    def check(self, config: parts.Config, classes: Sequence[str]) -> None:
        """Refuse what the filter would refuse."""
        if self.mode == "manual" and len(self.eps) != len(classes):
            raise RequestError(f"mode manual has {len(self.eps)} eps for {len(classes)} classes: give one for each")
        parts.configure("filters", config.model_dump(mode="json") | self.to_options(classes))

    def with_decided_eps(self, eps_star: NDArray[np.float64], labels: NDArray[np.int64], class_count: int) -> Self:
        """Return the settings with the eps that the mode decides; None for a class without points."""
        given = self.eps_by_class() if self.mode == "manual" else None
        eps = filters.decide_eps(eps_star, labels, self.mode, self.drop, self.per_class, given)
        return self.model_copy(update={"eps": tuple(eps.get(index) for index in range(class_count))})
