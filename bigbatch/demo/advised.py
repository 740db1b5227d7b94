"""What `bigbatch advise` says about the baseline, in a few seconds."""

from __future__ import annotations

from dataclasses import dataclass

from bigbatch.run import Run

SECONDS = 10.0


@dataclass(frozen=True)
class Advised:
    batch: int
    says: list[str]


def advised(run: Run, seconds: float) -> Advised:
    """In a worker."""
    from bigbatch.advice import advise_run, report

    advice = advise_run(run, seconds=seconds)
    return Advised(
        advice.batch,
        [
            f"{report.format_verdict(advice)} (grade {advice.grade}: {'; '.join(advice.reasons)})",
            f"noise scale: {report.format_noise_scale(advice)}; a step takes {report.format_step_time(advice)}",
        ],
    )
