"""Runs compared with the numbers that papers report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from bigbatch import parts
from bigbatch.output.formatting import differing_fields, flatten_fields, format_value
from bigbatch.recipes import PaperNumber
from bigbatch.report.records import RunGroup
from bigbatch.sweeps import confidence_interval, format_metric

_HARMLESS = ("probes", "batchnorm_group")  # probes only read; a group of "auto" is filled in by hand in some recipes
COLUMNS = ("run", "measure", "paper", "source", "ours", "verdict", "differs from the paper's recipe in")


def compare_with_papers(groups: Sequence[RunGroup]) -> Iterator[tuple[PaperNumber, list[str]]]:
    """Yield a row for every setting that has the dataset and the model of a recipe that states its paper's numbers."""
    recipes = [parts.find("recipes", name) for name in parts.names("recipes")]
    with_numbers = [(json.loads(one.run().to_json()), one.PAPER) for one in recipes if hasattr(one, "PAPER")]
    for group in groups:
        ours = group.records[0].training_settings
        for recipe, numbers in with_numbers:
            if any(ours.get(name) != recipe[name] for name in ("dataset", "model")):
                continue
            theirs = {name: value for name, value in recipe.items() if name in ours}
            names = [name for name in differing_fields([theirs, ours]) if name.partition(".")[0] not in _HARMLESS]
            values = flatten_fields(ours)
            differs = ", ".join(f"{name}={format_value(values[name])}" for name in names if name in values)
            for number in numbers:
                if number.measure == group.measure:
                    measure, paper = number.measure.replace("_", " "), format_metric(number.value, number.measure)
                    row = [group.label, measure, paper, number.source, group.format_result()]
                    yield number, [*row, _judge(group, number), differs or "nothing"]


def _judge(group: RunGroup, number: PaperNumber) -> str:
    if not group.values:
        return "not done"
    mean, low, high = confidence_interval(group.values)
    better = mean >= number.value if number.measure == "test_accuracy" else mean <= number.value
    if low is None or high is None:
        return f"{'not worse' if better else 'worse'}, but one seed has no interval"
    if low <= number.value <= high:
        return "the paper's number lies within our interval"
    return "better than the paper's number" if better else "worse than the paper's number"
