"""summary.json: the result of a finished training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Summary(Mapping[str, Any]):
    """Result and cost of a training. Also a mapping: `summary["test_accuracy"]`."""

    measures: Mapping[str, float]  # of the last evaluation: test_loss, test_accuracy or test_perplexity
    train_loss: float | None  # mean over the last epoch
    diverged_at_step: int | None
    epochs: float
    steps: int
    samples: int
    seconds: float
    samples_per_second: float
    peak_rss_mb: float
    ranks: int
    crossings: Mapping[str, Mapping[str, float | None] | None] | None = (
        None  # by target: where the run first reached it
    )

    @property
    def test_accuracy(self) -> float | None:
        return self.measures.get("test_accuracy")

    @property
    def test_loss(self) -> float | None:
        return self.measures.get("test_loss")

    @property
    def test_perplexity(self) -> float | None:
        return self.measures.get("test_perplexity")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        stored = {**self.measures, **{name: getattr(self, name) for name in _field_names()}}
        return stored if self.crossings is not None else {k: v for k, v in stored.items() if k != "crossings"}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Summary:
        """Build a summary from the content of summary.json; missing fields are None."""
        measures = {name: value for name, value in stored.items() if name.startswith("test_")}
        values: dict[str, Any] = {name: stored.get(name) for name in _field_names()}
        return cls(measures, **values)

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


def _field_names() -> list[str]:
    return [field.name for field in fields(Summary) if field.name != "measures"]
