"""demo.html: the table, the curves behind it, the advice, and the digits that the filter drops."""

from __future__ import annotations

import os
from pathlib import Path

from bigbatch import __version__
from bigbatch.demo import tuning
from bigbatch.demo.advised import Advised
from bigbatch.demo.filtered import DROP, Dropped
from bigbatch.demo.measured import Found, gap, verdict, won_back
from bigbatch.demo.stations import BASELINE, LEGW, LEGW_LARS, LINEAR, UNSCALED
from bigbatch.output.page import Page
from bigbatch.recipes import legw_digits
from bigbatch.report.charts import curves
from bigbatch.report.groups import Group
from bigbatch.report.records import read

_DRAWN = ("Test accuracy", "Learning rate", "Training loss")


def write(out: Path, found: Found, advice: Advised, filtered: Dropped, runs_dir: Path, seconds: float) -> Path:
    page = Page("What a 32 times larger batch costs, and what wins it back", _scale(found))
    shares = (won_back(found, name) for name in (LEGW, LEGW_LARS))
    page.key_numbers(
        [
            *((name, found[name].brief()) for name in (BASELINE, UNSCALED, LEGW, LEGW_LARS)),
            ("won back by LEGW, with LARS", ", ".join("-" if s is None else f"{100 * s:.0f} %" for s in shares)),
        ]
    )
    page.text(gap(found))
    for name in (LINEAR, LEGW, LEGW_LARS):
        page.text(verdict(found, name))
    page.table(
        ["", "what is done", "global batch", "peak lr", "test accuracy", "seeds", "steps", "seconds a run"],
        [
            [
                name,
                measured.station.says,
                measured.station.global_batch,
                measured.station.peak_lr,
                measured.described(),
                ", ".join(f"{100 * accuracy:.1f}" for accuracy in measured.accuracies),
                measured.summaries[0]["steps"],
                measured.summaries[0]["seconds"],
            ]
            for name, measured in found.items()
        ],
    )
    page.text(
        f"Initial weights ({legw_digits.INIT}'s rather than {_other_init()}'s), lr {legw_digits.LR:g}, warm-up of "
        f"{legw_digits.WARMUP_EPOCHS:g} epochs and, for LARS, trust coefficient {legw_digits.TRUST_COEFFICIENT:g} were "
        f"chosen at batch {legw_digits.BASELINE_BATCH} alone, each number among three a factor of four apart, by "
        f"accuracy on a fifth of the training set that was held out ('bigbatch demo --tune' repeats it). "
        f"At batch {found[LEGW].station.global_batch} they follow from the rules."
    )
    page.text(tuning.HOW_FAR_IT_CARRIES)
    _curves(page, found, runs_dir)
    page.heading("What advise says")
    for line in advice.says:
        page.text(line)
    _filtered(page, filtered)
    page.footer(
        [
            f"bigbatch {__version__}; {seconds:.0f} s on {os.cpu_count()} cores. "
            f"The runs are in {runs_dir}: 'bigbatch report {runs_dir}' shows more of them.",
            "Intervals are 95 % t-intervals of the mean over seeds, cut to 0-100 %; the test set has 360 digits.",
        ]
    )
    return page.write(out)


def _other_init() -> str:
    return next(init for init in tuning.INITS if init != legw_digits.INIT)


def _scale(found: Found) -> str:
    run, seeds = found[BASELINE].station.run, found[BASELINE].seeds
    named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return f"scikit-learn's digits (8 x 8), LSTM of 64 units, {run.epochs:g} epochs, {named}; laptop scale"


def _curves(page: Page, found: Found, runs_dir: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        page.text("Curves need matplotlib: pip install 'bigbatch[plot]'", "warning")
        return
    groups = [
        Group(name, tuple(read(runs_dir / measured.station.with_seed(seed).folder_name) for seed in measured.seeds))
        for name, measured in found.items()
    ]
    page.heading("How they learned")
    drawn = {chart.title: (chart, caption) for chart, caption in curves(groups, _scale(found))}
    page.charts(drawn[title] for title in _DRAWN)


def _filtered(page: Page, filtered: Dropped) -> None:
    page.heading("What the network filter drops")
    how = "a t-SNE map" if filtered.reducer == "tsne" else "principal components"
    page.text(
        f"Features of the trained baseline, {how}, then DBSCAN in each class: the {100 * DROP:g} % that fit nowhere, "
        f"{filtered.count} of {filtered.of:,} digits."
    )
    if filtered.taken_for_another >= 0:
        page.text(f"The network itself takes {filtered.taken_for_another} of them for another digit.")
    page.table(["class", "dropped"], list(filtered.by_class.items()), heat="dropped")
    page.text("The digits that lie farthest from their own kind, the most noisy first:")
    page.png_images(filtered.pictures)
