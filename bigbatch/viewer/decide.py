"""Settings of a page, and what they come to by the network filter's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bigbatch import filters, parts
from bigbatch.viewer.refused import Refused

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class Settings(BaseModel):
    """How noise is decided; `eps` has a place for each class, and is asked for by `manual` only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: Literal["fraction", "paper", "manual"]
    min_samples: int = Field(ge=1)
    drop: float = Field(ge=0, lt=1)
    per_class: bool = True
    eps: tuple[float | None, ...] = ()

    def by_number(self) -> dict[int, float]:
        """The radius of each class that has one."""
        return {index: eps for index, eps in enumerate(self.eps) if eps is not None}

    def as_options(self, classes: Sequence[str]) -> dict[str, Any]:
        """The filter's options that stand for them."""
        options = self.model_dump(include={"mode", "min_samples", "drop", "per_class"})
        eps = {classes[index]: eps for index, eps in self.by_number().items()}
        return options | {"eps": eps if self.mode == "manual" else None}


def of_config(config: Any, classes: Sequence[str]) -> Settings:
    """The settings that a filter was made with."""
    given = config.eps if isinstance(config.eps, dict) else dict.fromkeys(classes, config.eps)
    return Settings(
        mode=config.mode,
        min_samples=config.min_samples,
        drop=config.drop,
        per_class=config.per_class,
        eps=tuple(given.get(name) for name in classes),
    )


def check(settings: Settings, config: parts.Config, classes: Sequence[str]) -> None:
    """Refuse what the filter would refuse."""
    if settings.mode == "manual" and len(settings.eps) != len(classes):
        raise Refused(f"mode manual has {len(settings.eps)} eps for {len(classes)} classes: give one for each")
    parts.configure("filters", config.model_dump(mode="json") | settings.as_options(classes))


def filled(settings: Settings, eps_star: Floats, labels: Labels, classes: Sequence[str]) -> Settings:
    """With the eps that the mode decides; None for a class without points."""
    given = settings.by_number() if settings.mode == "manual" else None
    eps = filters.decide_eps(eps_star, labels, settings.mode, settings.drop, settings.per_class, given)
    return settings.model_copy(update={"eps": tuple(eps.get(index) for index in range(len(classes)))})
