"""The sentences and numbers that screen and page share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbatch.advice.answer import Advice


def number(value: float | None) -> str:
    """Three digits, and thousands with commas; None is without end."""
    if value is None:
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def span(ends: list[float | None]) -> str:
    """`52 to 98`, or `at least 52`."""
    low, high = ends
    if high is None:
        return f"at least {number(low)}" if low is not None else "without end"
    return f"{number(low)} to {number(high)}"


def duration(seconds: float | None) -> str:
    """In the unit that people would use."""
    if seconds is None:
        return "–"
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def verdict(advice: Advice) -> str:
    now = f"now {advice.now:,}"
    if advice.batch == advice.now:
        return f"keep the global batch of {advice.batch:,}"
    least = "at least " if advice.only_lower_bound else ""
    low, high = advice.expected["seconds"]["interval"]
    doubt = ", which is not faster beyond doubt" if high is None or low <= 1 <= high else ""
    return f"use a global batch of {least}{advice.batch:,} ({now}){doubt}"


def near_best(advice: Advice) -> str:
    """How the advised batch stands to B*."""
    if advice.limited_by:
        return f"{advice.batch:,} is what {advice.limited_by} leaves of it"
    kind = "the present batch" if advice.batch == advice.now else "the power of two nearby"
    return f"{advice.batch:,}, {kind}, has {percent(advice.share_of_best)} of its goodput"


def noise_scale(advice: Advice) -> str:
    if advice.only_lower_bound:
        return f"{number(advice.noise_scale)} or more (only a lower bound)"
    return f"{number(advice.noise_scale)} ({span(advice.noise_scale_interval)})"


def memory_cap(advice: Advice) -> str:
    if advice.memory_cap is None:
        return "unknown"
    return f"about {advice.memory_cap:,} in one piece"


def step_time(advice: Advice) -> str:
    times = advice.step_times
    return (
        f"{duration(times['fixed_seconds'])} + {duration(times['seconds_per_sample'])} a sample, "
        f"within {percent(times['misfit'])} of the times at {times['batches'][0]} to {times['batches'][-1]:,}"
    )


def expectations(advice: Advice) -> list[tuple[str, str, str, str]]:
    """What, now, then, factor with its interval."""
    rows = []
    for name, shown in (("steps", number), ("samples", number), ("seconds", duration)):
        row: dict[str, Any] = advice.expected[name]
        now, then = (shown(row[key]) if row[key] is not None else "–" for key in ("now", "then"))
        label = "time" if name == "seconds" else name
        rows.append((label, now, then, f"{row['factor']:.3g} ({span(row['interval'])})"))
    return rows


def rules(advice: Advice) -> list[tuple[str, str, str]]:
    """Rule, learning rate, warm-up; the baseline first."""
    schedule = advice.schedule
    base = schedule["baseline"]
    rows = [(f"baseline, at {base['global_batch']:,}", f"{base['lr']:.3g}", f"{base['warmup_epochs']:.3g} epochs")]
    for key, label in (("legw", "LEGW (√k, k× warm-up)"), ("linear", "linear (Goyal)"), ("lars", "LARS")):
        rule = schedule[key]
        if key == "lars" and rule["trust_coefficient"] is not None:
            label = f"LARS, trust {rule['trust_coefficient']:.2g}"
        longer = ": more than the training" if rule["too_long"] else ""
        rows.append((label, f"{rule['lr']:.3g}", f"{rule['warmup_epochs']:.3g} epochs{longer}"))
    return rows


def prior(advice: Advice) -> str:
    known = advice.prior
    low, high = known["batches"]
    return f"Prior, not mixed in ({known['source']}; {known['setting']}, batches {low} to {high:,}): {known['says']}."
