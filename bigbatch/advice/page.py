"""Advice as one page: verdict, goodput, noise over training, gradients, strides, curvature, layers, conditions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bigbatch.advice import report
from bigbatch.output.figures import Band, Chart
from bigbatch.output.formatting import format_duration, format_number, format_percent
from bigbatch.output.page import Page

if TYPE_CHECKING:
    from bigbatch.advice.branching import Branching
    from bigbatch.advice.recommendation import Advice

# Gahlot et al. 2020, section IV. Figs. 4 and 5 (preferred batch against learning rate) are pictures without numbers in
# the text, which gives their range and shape; section IV-B gives accuracies at a few batches.
_PRIOR = (
    "at each learning rate the accuracy rises with the batch up to a preferred one and falls beyond it, slowly for "
    "small networks and at once for large ones; the peaks are close together at low learning rates, apart at high ones "
    "(Gahlot, Yin, Shankar 2020, Figs. 4 and 5; ResNet-18 to ResNet-152 on CIFAR-10, SGD, 50 epochs, batches 16 to "
    "20,480)"
)
_PRIOR_ACCURACIES = {
    "network-filtered": {64: 81.8, 128: 82.7, 256: 83.2, 6272: 77.5},
    "full": {256: 82.6, 6272: 75.2},
    "randomly filtered": {64: 79.2, 128: 80.5, 256: 80.9},
}


def build_page(advice: Advice) -> Page:
    page = Page(f"{advice.of}: {report.format_verdict(advice)}", f"grade {advice.grade}: {'; '.join(advice.reasons)}")
    lower_bound = ", only a lower bound" if advice.only_lower_bound else ""
    page.key_numbers(
        [
            ("advised global batch", f"{advice.batch:,}"),
            ("best time at B*", report.format_optimum(advice)),
            (f"noise scale φ{lower_bound}", report.format_noise_scale(advice)),
            ("fits into memory at once", format_number(advice.memory_cap) if advice.memory_cap else "unknown"),
            (f"time to the same loss, over that at {advice.now:,}", f"× {advice.expected['seconds'].factor:.3g}"),
            ("grade", advice.grade),
        ]
    )
    for warning in advice.warnings:
        page.text(f"Note: {warning}.", "warning")
    if advice.verified:
        kind = {"worse": "warning", "better": "good"}.get(advice.verified.verdict, "")
        page.text(f"Verified with {len(advice.verified.branches[0].losses)} orders: {advice.verified.said}.", kind)

    if advice.branched:
        page.text(f"Critical batch by branching: {advice.branched.said}. {report.format_trust(advice)}.")

    page.heading("What it brings, and the learning rate to use")
    page.charts([_goodput_chart(advice), _step_time_chart(advice)])
    page.table(
        ["against now", f"at {advice.now:,}", f"at {advice.batch:,}", "factor (90 %)"], report.list_expectations(advice)
    )
    page.table(["rule", f"learning rate at {advice.batch:,}", "warm-up"], report.list_scaled_schedules(advice))
    page.text(f"Prior, not mixed in: {_PRIOR}.")
    page.charts([_prior_chart()])

    page.heading("The gradient and its noise")
    page.charts([_noise_chart(advice), _gradient_chart(advice)])
    if advice.branched:
        page.charts([_branch_chart(advice, advice.branched)])
    page.heading("Steps and curvature")
    page.charts([_stride_chart(advice), _curvature_chart(advice)])
    if advice.lipschitz_peaks:
        page.table(
            ["run", "global batch", "L(x, g) peaked at step", "at epoch"],
            [[peak.run, peak.global_batch, peak.step, peak.epochs] for peak in advice.lipschitz_peaks],
        )
    page.heading("Layers")
    page.text(
        f"The shade is each tensor's own noise scale, where its signal could be separated from noise. ‖g‖ is that of a "
        f"batch of {advice.now:,}; where ‖w‖/‖g‖ differs much between layers, one learning rate cannot suit all."
    )
    page.table(
        ["tensor", "elements", "‖w‖", "‖g‖", "‖w‖/‖g‖", "noise scale", "E|Δw|"],
        [
            [layer.name, layer.elements, layer.weight, layer.gradient, layer.ratio, layer.noise_scale, layer.stride]
            for layer in advice.layers
        ],
        heat="noise scale",
    )
    page.footer(_list_conditions(advice))
    return page


# -- charts, each with its caption


def _goodput_chart(advice: Advice) -> tuple[Chart, str]:
    chart = Chart("Progress per second, relative to now", "global batch", "goodput", scale=_scale(advice), log_x=True)
    rows = advice.goodput
    chart.line(
        "goodput, 90 % band",
        [row.batch for row in rows],
        [row.value for row in rows],
        band=Band([row.interval[0] for row in rows], [row.interval[1] for row in rows]),
        markers=False,
    )
    first, last = rows[0].batch, rows[-1].batch
    advised = [("advised", advice.batch)] if advice.batch != advice.now else []
    limits = [("φ", advice.noise_scale), ("data", advice.data_cap), ("memory cap", advice.memory_cap)]
    for label, value in [("now", advice.now), *advised, ("B*", advice.optimum), *limits]:
        if value is not None and first <= value <= last:
            chart.vertical_line(value, f"{label} {format_number(value)}")
    beyond = [f"{label} ({format_number(value)})" for label, value in limits if value is not None and value > last]
    outside = f" Beyond the right edge: {', '.join(beyond)}." if beyond else ""
    return chart, (
        f"Throughput B/(a + b·B) times efficiency (φ + B₀)/(φ + B), with B₀ the present {advice.now:,}; it peaks at "
        f"B* = √(aφ/b). {report.format_fraction_of_best(advice).capitalize()}.{outside}"
    )


def _step_time_chart(advice: Advice) -> tuple[Chart, str]:
    times = advice.step_times
    chart = Chart("Time of a step", "global batch", "ms", scale=_scale(advice), log_x=True, log_y=True)
    milliseconds = [1000 * seconds for seconds in times.seconds]
    chart.points(f"shortest of {len(times.rounds)} rounds", times.batches, milliseconds)
    batches = np.geomspace(times.batches[0], times.batches[-1], 50).tolist()
    line = [1000 * (times.fixed_seconds + times.seconds_per_sample * batch) for batch in batches]
    chart.line("a + b·B", batches, line, markers=False, dashed=True)
    split = f" Larger batches are split into micro-batches of {times.micro_batch}." if times.micro_batch else ""
    return chart, f"{times.unit}. A step takes {report.format_step_time(advice)}.{split}"


def _prior_chart() -> tuple[Chart, str]:
    source = "Gahlot, Yin, Shankar 2020, section IV-B"
    title = "A paper's accuracy against the batch (not used here)"
    chart = Chart(title, "global batch", "test accuracy, %", scale=source, log_x=True)
    for name, accuracies in _PRIOR_ACCURACIES.items():
        chart.line(name, list(accuracies), list(accuracies.values()), dashed=True)
    return chart, (
        "ResNet-18 on CIFAR-10, the accuracies that section IV-B states. Weight decay differs between them (0.005, "
        "0.012 and, at 6272 on 8 GPUs, 0.01), so the lines are only a guide. A prior: the answer does not use it."
    )


def _noise_chart(advice: Advice) -> tuple[Chart, str]:
    ends = [(row, *(row.interval or (None, None))) for row in advice.over_training]
    bounded = [(row.step, low) for row, low, high in ends if low is not None and high is None]
    known = [
        (row, low, high) for row, low, high in ends if row.estimate is not None and (low is None or high is not None)
    ]
    chart = Chart(
        "Noise scale over training", "step", "noise scale φ", scale=_scale(advice), log_y=bool(known or bounded)
    )
    chart.line(
        "φ, 90 % band",
        [row.step for row, _, _ in known],
        [row.estimate for row, _, _ in known],
        band=Band([low for _, low, _ in known], [high for _, _, high in known]),
    )
    if bounded:
        chart.points("lower bound", [step for step, _ in bounded], [low for _, low in bounded])
    return chart, (
        "trΣ/|G|² as a quotient of averages. The last point uses the most batches and is the one that the answer "
        "uses; where a batch was too small to separate the gradient from its noise there is only a lower bound."
    )


def _branch_chart(advice: Advice, found: Branching) -> tuple[Chart, str]:
    chart = Chart("Branches from one point", "samples", "loss on fixed samples", scale=_scale(advice))
    for branch in found.branches:
        known = [[loss for loss in at if loss is not None] for at in zip(*branch.losses, strict=True)]
        points = [(found.samples * (n + 1) / len(known), np.mean(losses)) for n, losses in enumerate(known) if losses]
        samples, losses = zip((0.0, found.loss_before), *points, strict=True)
        chart.line(f"{branch.batch:,}", samples, losses)
    return chart, (
        f"A line per batch, the mean of {len(found.branches[0].losses)} orders of the samples; learning rates by the "
        f"optimizer's scaling rule. {found.said.capitalize()}."
    )


def _gradient_chart(advice: Advice) -> tuple[Chart, str]:
    found = advice.gradient
    rows = found.by_batch
    chart = Chart(f"Mean |g| of {found.layer}", "batch n", "mean |g|", scale=_scale(advice), log_x=True, log_y=True)
    sizes = [row.batch for row in rows]
    chart.line(
        "measured",
        sizes,
        [row.measured for row in rows],
        band=Band(
            [row.measured - 1.645 * row.error for row in rows], [row.measured + 1.645 * row.error for row in rows]
        ),
    )
    chart.line("σ√(2/π)/√n, no mean gradient", sizes, [row.corrected for row in rows], markers=False, dashed=True)
    chart.line("folded normal", sizes, [row.folded for row in rows], markers=False, dashed=True)
    slope = "" if found.exponent is None else f" The measured slope is {found.exponent:.2f}."
    return chart, (
        f"Batches of {found.population:,} samples, drawn without replacement (Gao & Zhong 2020, eq. 4, with the "
        f"constant corrected). Noise alone falls by 1/√n; the mean gradient stays.{slope}"
    )


def _stride_chart(advice: Advice) -> tuple[Chart, str]:
    rows = [(row.step, row.normalised) for row in advice.strides if row.normalised is not None]
    chart = Chart("Stride of a step, E|Δw| / lr", "step", "E|Δw| / lr", scale=_scale(advice), log_y=bool(rows))
    chart.line("all weights", [step for step, _ in rows], [normalised for _, normalised in rows])
    return chart, "The mean distance that a step moves a weight, over the lr (Gao & Zhong 2020, eq. 6), with momentum."


def _curvature_chart(advice: Advice) -> tuple[Chart, str]:
    rows = advice.lipschitz
    chart = Chart("Curvature along the gradient", "step", "gᵀHg / ‖g‖²", scale=_scale(advice))
    chart.line("L(x, g), signed", [row.step for row in rows], [row.finite for row in rows])
    stable = [(row.step, 2 / row.lr) for row in rows if row.lr]
    top = max((abs(row.finite) for row in rows), default=0.0)
    if stable:
        chart.line("2 / lr", *zip(*stable, strict=True), markers=False, dashed=True)
        if top and min(limit for _, limit in stable) > 20 * top:  # so that both lines and the signs are visible
            chart.axes.set_yscale("symlog", linthresh=top)
    if not rows:
        return chart, "Not measured: see the notes."
    highest = max(rows, key=lambda row: row.finite)
    limit = f" 2/lr is {format_number(2 / rows[-1].lr)} at the last point." if rows[-1].lr else ""
    return chart, (
        f"On 32 fixed samples (LEGW paper, Fig. 3). Above 2/lr plain descent along g overshoots; a warm-up must "
        f"last beyond the peak, here {format_number(highest.finite)} at step {highest.step}.{limit}"
    )


def _scale(advice: Advice) -> str:
    return f"{advice.of}, seed {advice.about.seed}, {advice.about.steps} steps"


def _list_conditions(advice: Advice) -> list[str]:
    about, noise, outlook = advice.about, advice.over_training[-1], advice.outlook
    initialisations = "no other initialisations, because these weights are given"
    if outlook.initialisations:
        spread = math.exp(outlook.spread)
        initialisations = (
            f"a factor of {spread:.2g} between initialisations, of which {outlook.initialisations} were tried"
        )
    spent = ", ".join(f"{name} {format_duration(value)}" for name, value in about.seconds.items())
    return [
        f"Measured after {about.steps:,} steps ({about.epochs:.3g} epochs; the warm-up is "
        f"{about.warmup_epochs:.3g}), of which {about.steps_trained_here:,} were trained for this, at lr "
        f"{about.lr:.3g}, on {about.device} with {about.threads} threads.",
        f"Overhead: {format_duration(sum(about.seconds.values()))} in all: {spent}.",
        f"Noise scale of the given {advice.data_cap:,} samples, not of the population that they come from: from "
        f"{noise.batches} batches of {noise.batch:,} in micro-batches of {noise.micro_batch:,}; confidence intervals "
        f"hold {format_percent(about.level)} of bootstrap draws, of the noise and of the step times together.",
        f"BatchNorm: {about.batchnorm or 'none in the model'}. Dropout: {about.dropout or 'none in the model'}. "
        f"Mode: {about.mode}. Samples are not augmented.",
        f"Memory: {advice.memory.method}; it limits {advice.memory.limits}.",
        f"Curvature by central differences over a radius of {format_number(about.lipschitz_radius)} "
        f"(a thousandth of ‖w‖). Seed {about.seed}.",
        f"The interval of the noise scale includes its drift, usually a factor of {math.exp(outlook.drift):.2g} in "
        f"each of {outlook.doublings:.2g} further doublings of the steps, and {initialisations}. It is a model of the "
        "critical batch; on language models it was off by orders of magnitude (Merrill et al. 2025, arXiv 2505.23971): "
        "--branch trains at other batches instead. Of the intervals of time promised for seven small problems 15 of 18 "
        "held (benchmarks/advise.py).",
        "What B* does not include: generalisation. It is the batch with the least expected time to a training loss; "
        "--verify compares B and 2B by training.",
    ]
