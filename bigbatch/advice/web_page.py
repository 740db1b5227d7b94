"""The answer as one page: verdict, goodput, noise over training, gradients, strides, layers, curvature, doubts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigbatch.advice import words
from bigbatch.output.figures import Chart
from bigbatch.output.page import Page

if TYPE_CHECKING:
    from bigbatch.advice.answer import Advice


def page(advice: Advice) -> Page:
    made = Page(f"{advice.of}: {words.verdict(advice)}", f"grade {advice.grade}: {'; '.join(advice.reasons)}")
    made.strip(
        [
            ("advised global batch", f"{advice.batch:,}"),
            ("best time at B*, 90 %", f"{words.number(advice.optimum)} ({words.span(advice.interval)})"),
            (f"noise scale φ{', only a lower bound' if advice.only_lower_bound else ''}", words.noise_scale(advice)),
            ("memory holds in one piece", words.number(advice.memory_cap) if advice.memory_cap else "unknown"),
            (f"time to the same loss, over that at {advice.now:,}", f"× {advice.expected['seconds']['factor']:.3g}"),
            ("grade", advice.grade),
        ]
    )
    for warning in advice.warnings:
        made.text(f"Note: {warning}.", "warning")
    if advice.verified:
        kind = {"worse": "warning", "better": "good"}.get(advice.verified["verdict"], "")
        made.text(f"Verified with {advice.verified['seeds']} orders: {advice.verified['said']}.", kind)

    made.heading("What it brings, and the learning rate to use")
    made.charts([(_goodput(advice), _goodput_caption(advice)), (_times(advice), _times_caption(advice))])
    made.table(
        ["against now", f"at {advice.now:,}", f"at {advice.batch:,}", "factor (90 %)"], words.expectations(advice)
    )
    made.table(["rule", f"learning rate at {advice.batch:,}", "warm-up"], words.rules(advice))
    made.text(words.prior(advice))
    made.charts([(_prior(advice), advice.prior["caption"])])

    made.heading("The gradient and its noise")
    made.charts([(_noise(advice), _noise_caption(advice)), (_gradient(advice), _gradient_caption(advice))])
    made.heading("Steps and curvature")
    made.charts([(_strides(advice), _strides_caption(advice)), (_lipschitz(advice), _lipschitz_caption(advice))])
    if advice.lipschitz_peaks:
        columns = ["run", "global_batch", "step", "epochs"]
        made.table(
            ["run", "global batch", "L(x, g) peaked at step", "at epoch"],
            [[row[column] for column in columns] for row in advice.lipschitz_peaks],
        )
    made.heading("Layers")
    made.text(
        f"The shade is each tensor's own noise scale, where its signal could be told from noise. ‖g‖ is that of a "
        f"batch of {advice.now:,}; where ‖w‖/‖g‖ differs much between layers, one learning rate cannot suit all."
    )
    made.table(
        ["tensor", "elements", "‖w‖", "‖g‖", "‖w‖/‖g‖", "noise scale", "E|Δw|"],
        [
            [layer[key] for key in ("name", "elements", "weight", "gradient", "ratio", "noise_scale", "stride")]
            for layer in advice.layers
        ],
        heat="noise scale",
    )
    made.footer(_footer(advice))
    return made


# -- goodput


def _goodput(advice: Advice) -> Chart:
    chart = Chart("Progress a second, relative to now", "global batch", "goodput", scale=_scale(advice), log_x=True)
    rows = advice.goodput
    chart.line(
        "goodput, 90 % band",
        [row["batch"] for row in rows],
        [row["value"] for row in rows],
        low=[row["interval"][0] for row in rows],
        high=[row["interval"][1] for row in rows],
        markers=False,
    )
    _mark(chart, advice)
    return chart


def _mark(chart: Chart, advice: Advice) -> None:
    marks = [("now", advice.now), ("B*", advice.optimum), ("φ", advice.noise_scale), ("data", advice.data_cap)]
    if advice.batch != advice.now:
        marks.insert(1, ("advised", advice.batch))
    first, last = advice.goodput[0]["batch"], advice.goodput[-1]["batch"]
    for label, value in [*marks, ("memory cap", advice.memory_cap)]:
        if value is not None and first <= value <= last:
            chart.vertical(value, f"{label} {words.number(value)}")


def _goodput_caption(advice: Advice) -> str:
    last = advice.goodput[-1]["batch"]
    beyond = [
        f"{label} ({words.number(value)})"
        for label, value in (
            ("φ", advice.noise_scale),
            ("all of the data", advice.data_cap),
            ("the memory cap", advice.memory_cap),
        )
        if value is not None and value > last
    ]
    outside = f" Beyond the right edge: {', '.join(beyond)}." if beyond else ""
    return (
        f"Throughput B/(a + b·B) times efficiency (φ + B₀)/(φ + B), with B₀ the {advice.now:,} of now; it peaks at "
        f"B* = √(aφ/b). {words.near_best(advice).capitalize()}.{outside}"
    )


def _times(advice: Advice) -> Chart:
    times = advice.step_times
    chart = Chart("Time of a step", "global batch", "ms", scale=_scale(advice), log_x=True, log_y=True)
    milliseconds = [1000 * seconds for seconds in times["seconds"]]
    chart.points(f"least of {times['rounds']} rounds", times["batches"], milliseconds)
    along = np.geomspace(times["batches"][0], times["batches"][-1], 50).tolist()
    line = [1000 * (times["fixed_seconds"] + times["seconds_per_sample"] * batch) for batch in along]
    chart.line("a + b·B", along, line, markers=False, dashed=True)
    return chart


def _times_caption(advice: Advice) -> str:
    pieces = advice.step_times["micro_batch"]
    cut = f" Larger batches are cut into micro-batches of {pieces}." if pieces else ""
    return f"{advice.step_times['unit']}. A step takes {words.step_time(advice)}.{cut}"


def _prior(advice: Advice) -> Chart:
    chart = Chart(
        "A paper's accuracy against the batch (not used here)",
        "global batch",
        "test accuracy, %",
        scale="Gahlot, Yin, Shankar 2020, section IV-B",
        log_x=True,
    )
    for series in advice.prior["series"]:
        chart.line(series["name"], series["batches"], series["accuracies"], dashed=True)
    return chart


# -- the gradient and its noise


def _noise(advice: Advice) -> Chart:
    bounded = [row for row in advice.over_training if _end(row, 0) is not None and _end(row, 1) is None]
    rows = [row for row in advice.over_training if row["estimate"] is not None and row not in bounded]
    chart = Chart(
        "Noise scale over training", "step", "noise scale φ", scale=_scale(advice), log_y=bool(rows or bounded)
    )
    chart.line(
        "φ, 90 % band",
        [row["step"] for row in rows],
        [row["estimate"] for row in rows],
        low=[_end(row, 0) for row in rows],
        high=[_end(row, 1) for row in rows],
    )
    if bounded:
        chart.points("only at least this", [row["step"] for row in bounded], [_end(row, 0) or 0.0 for row in bounded])
    return chart


def _end(row: dict[str, Any], which: int) -> float | None:
    return row["interval"][which] if row["interval"] else None


def _noise_caption(advice: Advice) -> str:
    return (
        "trΣ/|G|² as a quotient of averages. The last point has the most batches behind it and is what the answer "
        "rests on; where a batch could not tell the gradient from its noise there is only a lower end."
    )


def _gradient(advice: Advice) -> Chart:
    found = advice.gradient
    rows = found["by_batch"]
    chart = Chart(f"Mean |g| of {found['layer']}", "batch n", "mean |g|", scale=_scale(advice), log_x=True, log_y=True)
    sizes = [row["batch"] for row in rows]
    chart.line(
        "measured",
        sizes,
        [row["measured"] for row in rows],
        low=[row["measured"] - 1.645 * row["error"] for row in rows],
        high=[row["measured"] + 1.645 * row["error"] for row in rows],
    )
    chart.line("σ√(2/π)/√n, no mean gradient", sizes, [row["corrected"] for row in rows], markers=False, dashed=True)
    chart.line("folded normal", sizes, [row["folded"] for row in rows], markers=False, dashed=True)
    return chart


def _gradient_caption(advice: Advice) -> str:
    found = advice.gradient
    slope = "" if found["exponent"] is None else f" The measured slope is {found['exponent']:.2f}."
    return (
        f"Batches of {found['population']:,} samples, drawn without replacement (Gao & Zhong 2020, eq. 4, with the "
        f"constant corrected). Noise alone falls by 1/√n; the mean gradient stays.{slope}"
    )


# -- steps and curvature


def _strides(advice: Advice) -> Chart:
    rows = [row for row in advice.strides if row["normalised"] is not None]
    chart = Chart("Stride of a step, E|Δw| / lr", "step", "E|Δw| / lr", scale=_scale(advice), log_y=bool(rows))
    chart.line("all weights", [row["step"] for row in rows], [row["normalised"] for row in rows])
    return chart


def _strides_caption(advice: Advice) -> str:
    return "How far a step moves a weight in the mean, over the lr (Gao & Zhong 2020, eq. 6); momentum included."


def _lipschitz(advice: Advice) -> Chart:
    chart = Chart("Curvature along the gradient", "step", "gᵀHg / ‖g‖²", scale=_scale(advice))
    steps = [row["step"] for row in advice.lipschitz]
    chart.line("L(x, g), signed", steps, [row["finite"] for row in advice.lipschitz])
    stable = [(row["step"], 2 / row["lr"]) for row in advice.lipschitz if row["lr"]]
    top = max((abs(row["finite"]) for row in advice.lipschitz), default=0.0)
    if stable:
        chart.line("2 / lr", *zip(*stable, strict=True), markers=False, dashed=True)
        if top and min(limit for _, limit in stable) > 20 * top:  # both are to be seen, and signs too
            chart.axes.set_yscale("symlog", linthresh=top)
    return chart


def _lipschitz_caption(advice: Advice) -> str:
    if not advice.lipschitz:
        return "Not measured: see the notes."
    highest = max(advice.lipschitz, key=lambda row: row["finite"])
    last = advice.lipschitz[-1]
    limit = "" if not last["lr"] else f" 2/lr is {words.number(2 / last['lr'])} at the last point."
    return (
        f"On 32 fixed samples (LEGW paper, Fig. 3). Above 2/lr plain descent along g overshoots; a warm-up has to "
        f"last beyond the peak, here {words.number(highest['finite'])} at step {highest['step']}.{limit}"
    )


# -- what to know


def _scale(advice: Advice) -> str:
    return f"{advice.of}, seed {advice.about['seed']}, {advice.about['steps']} steps"


def _footer(advice: Advice) -> list[str]:
    about = advice.about
    seconds = about["seconds"]
    spent = ", ".join(f"{name} {words.duration(value)}" for name, value in seconds.items())
    norms = about.get("batchnorm", "none in the model")
    noise = advice.noise
    return [
        f"Measured after {about['steps']:,} steps ({about['epochs']:.3g} epochs; the warm-up is "
        f"{about['warmup_epochs']:.3g}), of which {about['steps_trained_here']:,} were trained for this, at lr "
        f"{about['lr']:.3g}, on {about['device']} with {about['threads']} threads.",
        f"Overhead: {words.duration(sum(seconds.values()))} in all: {spent}.",
        f"Noise scale of the {advice.data_cap:,} samples at hand, not of those they were drawn from: from "
        f"{noise['rows']} batches of {noise['batch']:,} in pieces of {noise['piece']:,}; intervals "
        f"hold {words.percent(about['level'])} of bootstrap draws, of the noise and of the step times together.",
        f"BatchNorm: {norms}. Dropout: {about.get('dropout', 'none in the model')}. Mode: {about['mode']}. Samples are "
        f"taken as they are, not augmented.",
        f"Memory: {advice.memory['method']}; it limits {advice.memory['limits']}.",
        f"Curvature by central differences over a radius of {words.number(about['lipschitz_radius'])} "
        f"(a thousandth of ‖w‖). Seed {about['seed']}.",
        "What B* cannot know: generalisation. It is the batch with the least expected time to a training loss; "
        "--verify compares B and 2B by training.",
    ]
