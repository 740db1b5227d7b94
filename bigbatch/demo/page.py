"""demo.html: the table, the curves of the runs, the advice, and the digits that the filter drops."""

from __future__ import annotations

import os

from bigbatch import __version__
from bigbatch.advice.report import format_noise_scale, format_step_time, format_verdict
from bigbatch.demo import run as demo
from bigbatch.libraries import is_installed
from bigbatch.output.formatting import format_percent
from bigbatch.output.page import Page
from bigbatch.recipes import legw_digits
from bigbatch.report.charts import metric_charts
from bigbatch.report.records import RunGroup, read_run
from bigbatch.sweeps import format_mean

_CHART_TITLES = ("Test accuracy", "Learning rate", "Training loss")
_COLUMNS = ["", "what is done", "global batch", "peak lr", "test accuracy", "seeds", "steps", "seconds per run"]
_DESCRIPTIONS = {
    demo.BASELINE: "small batch, tuned",
    demo.UNSCALED: "nothing else changed",
    demo.LINEAR: f"{demo.BATCH_FACTOR} times the learning rate",
    demo.LEGW: f"√{demo.BATCH_FACTOR} times the learning rate, {demo.BATCH_FACTOR} times the warm-up",
    demo.LEGW_LARS: "the same, and a learning rate for each layer",
}
_LIMITS = (
    "Limits: at the small batch these values hardly differ, and three seeds leave uncertainty. With TensorFlow's "
    "initial weights and 0.0125, 0.05 and 0.1 epochs of warm-up, LEGW won back 86, 91 and 86 % in trials of this demo, "
    "and 79 % with twice the lr. Initial weights became a choice of the small batch after these trials; the 30 epochs, "
    "the constant lr and the grids were chosen after looking at held-out accuracy at both batches."
)


def build_page(report: demo.DemoReport) -> Page:
    comparison, advice, dropped = report.comparison, report.advice, report.dropped
    baseline = comparison[demo.BASELINE]
    seeds = [str(result.seed) for result in baseline.runs]
    scale = (
        f"scikit-learn's digits (8 x 8), LSTM of 64 units, {baseline.run.epochs:g} epochs, "
        f"seed{'s'[: len(seeds) > 1]} {', '.join(seeds)}; laptop scale"
    )
    page = Page("What a 32 times larger batch costs, and what wins it back", scale)
    shown = (demo.BASELINE, demo.UNSCALED, demo.LEGW, demo.LEGW_LARS)
    accuracies = [(name, format_mean(comparison[name].group.values, "test_accuracy", digits=1)) for name in shown]
    fractions = (demo.fractions_won_back(comparison, variant)[0] for variant in shown[2:])
    won_back = ", ".join("-" if fraction is None else format_percent(fraction) for fraction in fractions)
    page.key_numbers([*accuracies, ("won back by LEGW, with LARS", won_back)])
    for sentence in demo.list_conclusions(comparison):
        page.text(sentence)
    rows = [
        [
            name,
            _DESCRIPTIONS[name],
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
    page.text(
        f"Initial weights (those of {legw_digits.INIT}), lr {legw_digits.LR:g}, warm-up of "
        f"{legw_digits.WARMUP_EPOCHS:g} epochs and, for LARS, trust coefficient {legw_digits.TRUST_COEFFICIENT:g} were "
        f"chosen at batch {legw_digits.BASELINE_BATCH} alone, each number among three a factor of four apart, by "
        "accuracy on a fifth of the training set that was held out ('bigbatch demo --tune' repeats it). "
        f"At batch {comparison[demo.LEGW].group.global_batch} they follow from the rules."
    )
    page.text(_LIMITS)
    if is_installed("matplotlib"):
        page.heading("Learning curves")
        groups = [RunGroup(name, tuple(read_run(r.folder) for r in found.runs)) for name, found in comparison.items()]
        page.charts(pair for pair in metric_charts(groups, scale) if pair[0].title in _CHART_TITLES)
    else:
        page.text("Curves need matplotlib: pip install 'bigbatch[plot]'", "warning")
    page.heading("What advise says")
    page.text(f"{format_verdict(advice)} (grade {advice.grade}: {'; '.join(advice.reasons)})")
    page.text(f"noise scale: {format_noise_scale(advice)}; a step takes {format_step_time(advice)}")
    page.heading("What the network filter drops")
    space = "a t-SNE map" if dropped.reducer == "tsne" else "principal components"
    page.text(
        f"Features of the trained baseline, {space}, then DBSCAN in each class: the {100 * demo.DROP_FRACTION:g} % "
        f"that belong to no cluster, {dropped.counts.dropped} digits. The network itself predicts another class for "
        f"{dropped.misclassified} of them."
    )
    by_class = [[name, counts.dropped] for name, counts in dropped.counts.by_class.items()]
    page.table(["class", "dropped"], by_class, heat="dropped")
    page.text("The digits that lie farthest from the others of their class, the farthest first:")
    page.png_images(dropped.pictures)
    page.footer(
        [
            f"bigbatch {__version__}; {report.seconds:.0f} s on {os.cpu_count()} cores. The runs are the sweep "
            f"{report.sweep_folder}: 'bigbatch report {report.sweep_folder}' shows more of them.",
            "Intervals are 95 % t-intervals of the mean over seeds, clipped to 0-100 %; the test set has 360 digits.",
        ]
    )
    return page
