"""Advice as sentences and table rows, and on one screen of 80 by 24."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bigbatch.output.formatting import format_duration, format_number, format_percent, format_range

if TYPE_CHECKING:
    from bigbatch.advice.recommendation import Advice

_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}
_MOST_WARNINGS = 2  # the page has all


def format_verdict(advice: Advice) -> str:
    if advice.batch == advice.now:
        return f"keep the global batch of {advice.batch:,}"
    least = "at least " if advice.only_lower_bound else ""
    low, high = advice.expected["seconds"].interval
    uncertain = high is None or (low is not None and low <= 1 <= high)
    significance = ", which is not significantly faster" if uncertain else ""
    return f"use a global batch of {least}{advice.batch:,} (now {advice.now:,}){significance}"


def format_fraction_of_best(advice: Advice) -> str:
    """The advised batch compared with B*."""
    if advice.limited_by:
        return f"{advice.batch:,} is what {advice.limited_by} allows of it"
    kind = "the present batch" if advice.batch == advice.now else "the power of two near it"
    return f"{advice.batch:,}, {kind}, has {format_percent(advice.fraction_of_best)} of its goodput"


def format_optimum(advice: Advice) -> str:
    """B* with its interval."""
    if advice.optimum is not None:
        return f"{format_number(advice.optimum)} (90 %: {format_range(*advice.interval)})"
    if advice.noise_scale is None:
        return "cannot tell"
    if advice.step_times.fixed_seconds == 0:
        return f"at most {advice.step_times.batches[0]}, the smallest that was timed"
    return "larger than all that were timed"


def format_noise_scale(advice: Advice) -> str:
    if advice.noise_scale is None:
        return "cannot tell"
    if advice.only_lower_bound:
        return f"{format_number(advice.noise_scale)} or more (only a lower bound)"
    return f"{format_number(advice.noise_scale)} ({format_range(*advice.noise_scale_interval)})"


def format_trust(advice: Advice) -> str:
    """Which of the two critical batches the answer uses, and why."""
    if advice.trusted == "branching":
        return (
            "Trusted: branching, which trained at these batches. The noise scale is a model, and on language models it "
            "was found to be off by orders of magnitude (Merrill et al. 2025, arXiv 2505.23971)"
        )
    return "Trusted: the noise scale, because branching cannot tell here; it may be off by orders of magnitude"


def format_step_time(advice: Advice) -> str:
    times = advice.step_times
    return (
        f"{format_duration(times.fixed_seconds)} + {format_duration(times.seconds_per_sample)} per sample, "
        f"within {format_percent(times.misfit)} of the times at {times.batches[0]} to {times.batches[-1]:,}"
    )


def list_expectations(advice: Advice) -> list[tuple[str, str, str, str]]:
    """Rows of what, now, then, and the factor with its interval."""
    rows = []
    for name, label in (("steps", "steps"), ("samples", "samples"), ("seconds", "time")):
        row, format_value = advice.expected[name], format_duration if name == "seconds" else format_number
        now, then = (format_value(value) if value is not None else "–" for value in (row.now, row.then))
        rows.append((label, now, then, f"{row.factor:.3g} ({format_range(*row.interval)})"))
    return rows


def list_scaled_schedules(advice: Advice) -> list[tuple[str, str, str]]:
    """Rows of rule, learning rate, warm-up; the baseline first."""
    lars = advice.schedule.get("lars")
    labels = {
        "baseline": f"baseline, at {advice.schedule['baseline'].global_batch:,}",
        "legw": "LEGW (√k, k× warm-up)",
        "linear": "linear (Goyal)",
        "lars": f"LARS, trust {lars.trust_coefficient:.2g}" if lars and lars.trust_coefficient else "LARS",
    }
    rows = []
    for name, rule in advice.schedule.items():
        longer = ": more than the training" if rule.too_long else ""
        rows.append((labels[name], f"{rule.lr:.3g}", f"{rule.warmup_epochs:.3g} epochs{longer}"))
    return rows


def print_advice(advice: Advice) -> None:
    """Print the advice on one screen."""
    console = Console()
    colour = _COLOURS[advice.grade]
    console.print(f"[bold]{escape(advice.of)}: {format_verdict(advice)}[/bold]", highlight=False)
    reasons = escape("; ".join(advice.reasons))
    console.print(f"[{colour}]grade {advice.grade}[/{colour}]: {reasons}", highlight=False, style="default")
    memory = "unknown" if advice.memory_cap is None else f"about {advice.memory_cap:,} without micro-batches"
    facts = _make_table()
    for fact in (
        ("best time at B*", format_optimum(advice)),
        ("", format_fraction_of_best(advice)),
        ("noise scale φ", format_noise_scale(advice)),
        *([("by branching", advice.branched.said)] if advice.branched else []),
        ("memory, data", f"{memory}; {advice.data_cap:,} samples in all"),
        ("a step takes", format_step_time(advice)),
    ):
        facts.add_row(*fact)
    console.print(facts)
    expected = _make_table("against now", "now", f"at {advice.batch:,}", "factor (90 %)")
    for row in list_expectations(advice):
        expected.add_row(*row)
    console.print(expected)
    rules = _make_table(f"learning rate at {advice.batch:,}", "lr", "warm-up")
    for rule in list_scaled_schedules(advice):
        rules.add_row(*rule)
    console.print(rules)
    if advice.branched:
        console.print(format_trust(advice), highlight=False)
    if advice.verified:
        console.print(f"verified: {escape(advice.verified.said)}", highlight=False)
    for warning in advice.warnings[:_MOST_WARNINGS]:
        console.print(f"note: {escape(warning)}", highlight=False)
    more = len(advice.warnings) - _MOST_WARNINGS
    if more > 0:
        console.print(f"and {more} more on the page", highlight=False)


def _make_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=bool(columns), header_style="bold")
    for column in columns:
        table.add_column(column)
    return table
