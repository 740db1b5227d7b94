"""Runs compared with the numbers that papers report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bigbatch import parts
from bigbatch.output.formatting import format_value
from bigbatch.recipes import PaperNumber
from bigbatch.report.groups import RunGroup, training_settings
from bigbatch.report.records import differing_fields, flatten_fields
from bigbatch.sweeps import confidence_interval, format_metric

_HARMLESS = ("probes", "batchnorm_group")  # probes only read; a group of "auto" is filled in by hand in some recipes
COLUMNS = ("run", "measure", "paper", "source", "ours", "verdict", "differs from the paper's recipe in")


class PaperComparison(NamedTuple):
    """One group of runs and one number of a paper."""

    group: RunGroup
    number: PaperNumber
    verdict: str
    differs: str

    def to_row(self) -> list[Any]:
        number = self.number
        measure = number.measure.replace("_", " ")
        paper = format_metric(number.value, number.measure)
        return [self.group.label, measure, paper, number.source, self.group.format_result(), self.verdict, self.differs]


def compare_with_papers(groups: Sequence[RunGroup]) -> list[PaperComparison]:
    """Every setting that has the dataset and the model of a recipe that states its paper's numbers."""
    recipes = list(_recipes_with_numbers())
    return [
        PaperComparison(group, number, _verdict(group, number), _differences(group, fields))
        for group in groups
        for fields, numbers in recipes
        if group.records[0].run and all(group.records[0].run.get(name) == fields[name] for name in ("dataset", "model"))
        for number in numbers
        if group.measure == number.measure
    ]


def _recipes_with_numbers() -> Iterator[tuple[dict[str, Any], tuple[PaperNumber, ...]]]:
    for name in parts.names("recipes"):
        recipe = parts.find("recipes", name)
        if hasattr(recipe, "PAPER"):
            yield json.loads(recipe.run().to_json()), recipe.PAPER


def _verdict(group: RunGroup, number: PaperNumber) -> str:
    if not group.values:
        return "not done"
    mean, low, high = confidence_interval(group.values)
    more_is_better = number.measure == "test_accuracy"
    better = mean >= number.value if more_is_better else mean <= number.value
    if low is None or high is None:
        return f"{'not worse' if better else 'worse'}, but one seed has no interval"
    if low <= number.value <= high:
        return "the paper's number lies within our interval"
    return "better than the paper's number" if better else "worse than the paper's number"


def _differences(group: RunGroup, recipe: dict[str, Any]) -> str:
    ours = training_settings(group.records[0])
    theirs = {name: value for name, value in recipe.items() if name in ours}
    names = [name for name in differing_fields([theirs, ours]) if name.partition(".")[0] not in _HARMLESS]
    values = flatten_fields(ours)
    return ", ".join(f"{name}={format_value(values[name])}" for name in names if name in values) or "nothing"
