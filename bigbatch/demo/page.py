"""demo.html: the table, the curves of the runs, the advice, and the digits that the filter drops."""

from __future__ import annotations

import os

from bigbatch import __version__
from bigbatch.advice.report import format_noise_scale, format_step_time, format_verdict
from bigbatch.demo.filtering import DROP_FRACTION, DroppedDigits
from bigbatch.demo.run import DemoReport
from bigbatch.demo.story import (
    BASELINE,
    DESCRIPTIONS,
    LEGW,
    LEGW_LARS,
    UNSCALED,
    Comparison,
    fraction_won_back,
    list_conclusions,
)
from bigbatch.demo.tuning import LIMITS
from bigbatch.libraries import is_installed
from bigbatch.output.formatting import format_percent
from bigbatch.output.page import Page
from bigbatch.recipes import legw_digits
from bigbatch.report.charts import metric_charts
from bigbatch.report.groups import RunGroup
from bigbatch.report.records import read_run

_CHART_TITLES = ("Test accuracy", "Learning rate", "Training loss")
_COLUMNS = ["", "what is done", "global batch", "peak lr", "test accuracy", "seeds", "steps", "seconds per run"]


def build_page(report: DemoReport) -> Page:
    comparison, advice = report.comparison, report.advice
    page = Page("What a 32 times larger batch costs, and what wins it back", _describe_scale(comparison))
    fractions = (fraction_won_back(comparison, variant) for variant in (LEGW, LEGW_LARS))
    key_numbers = [(name, comparison[name].format_accuracy()) for name in (BASELINE, UNSCALED, LEGW, LEGW_LARS)]
    won_back = ", ".join("-" if fraction is None else format_percent(fraction) for fraction in fractions)
    page.key_numbers([*key_numbers, ("won back by LEGW, with LARS", won_back)])
    for sentence in list_conclusions(comparison):
        page.text(sentence)
    _add_table(page, comparison)
    page.text(
        f"Initial weights (those of {legw_digits.INIT}), lr {legw_digits.LR:g}, warm-up of "
        f"{legw_digits.WARMUP_EPOCHS:g} epochs and, for LARS, trust coefficient {legw_digits.TRUST_COEFFICIENT:g} were "
        f"chosen at batch {legw_digits.BASELINE_BATCH} alone, each number among three a factor of four apart, by "
        "accuracy on a fifth of the training set that was held out ('bigbatch demo --tune' repeats it). "
        f"At batch {comparison[LEGW].group.global_batch} they follow from the rules."
    )
    page.text(LIMITS)
    _add_curves(page, comparison)
    page.heading("What advise says")
    page.text(f"{format_verdict(advice)} (grade {advice.grade}: {'; '.join(advice.reasons)})")
    page.text(f"noise scale: {format_noise_scale(advice)}; a step takes {format_step_time(advice)}")
    _add_dropped_digits(page, report.dropped)
    page.footer(
        [
            f"bigbatch {__version__}; {report.seconds:.0f} s on {os.cpu_count()} cores. The runs are the sweep "
            f"{report.sweep_folder}: 'bigbatch report {report.sweep_folder}' shows more of them.",
            "Intervals are 95 % t-intervals of the mean over seeds, clipped to 0-100 %; the test set has 360 digits.",
        ]
    )
    return page


def _describe_scale(comparison: Comparison) -> str:
    baseline = comparison[BASELINE]
    seeds = [str(result.seed) for result in baseline.runs]
    return (
        f"scikit-learn's digits (8 x 8), LSTM of 64 units, {baseline.run.epochs:g} epochs, "
        f"seed{'s'[: len(seeds) > 1]} {', '.join(seeds)}; laptop scale"
    )


def _add_table(page: Page, comparison: Comparison) -> None:
    rows = [
        [
            name,
            DESCRIPTIONS[name],
            variant.group.global_batch,
            variant.peak_lr,
            variant.describe(),
            ", ".join(f"{100 * accuracy:.1f}" for accuracy in variant.group.values),
            variant.steps,
            variant.runs[0].summary["seconds"],
        ]
        for name, variant in comparison.items()
    ]
    page.table(_COLUMNS, rows)


def _add_curves(page: Page, comparison: Comparison) -> None:
    if not is_installed("matplotlib"):
        page.text("Curves need matplotlib: pip install 'bigbatch[plot]'", "warning")
        return
    groups = [
        RunGroup(name, tuple(read_run(result.folder) for result in variant.runs))
        for name, variant in comparison.items()
    ]
    page.heading("Learning curves")
    charts = {chart.title: (chart, caption) for chart, caption in metric_charts(groups, _describe_scale(comparison))}
    page.charts(charts[title] for title in _CHART_TITLES)


def _add_dropped_digits(page: Page, dropped: DroppedDigits) -> None:
    page.heading("What the network filter drops")
    space = "a t-SNE map" if dropped.reducer == "tsne" else "principal components"
    page.text(
        f"Features of the trained baseline, {space}, then DBSCAN in each class: the {100 * DROP_FRACTION:g} % that "
        f"belong to no cluster, {dropped.counts.dropped} digits. The network itself predicts another class for "
        f"{dropped.misclassified} of them."
    )
    rows = [[name, counts.dropped] for name, counts in dropped.counts.by_class.items()]
    page.table(["class", "dropped"], rows, heat="dropped")
    page.text("The digits that lie farthest from the others of their class, the farthest first:")
    page.png_images(dropped.pictures)
