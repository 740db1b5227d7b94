"""How the recipe's rate and trust coefficient were chosen: at the small batch, on samples held out of the training set.

The rule: three values a factor of four apart, three seeds each; the highest mean held-out accuracy wins, and of equal
ones the larger value. The test set and the large batch are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bigbatch.demo.stations import SEEDS
from bigbatch.demo.workers import available_cores, workers
from bigbatch.filters._held_out import NAME
from bigbatch.filters._progress import shown, station
from bigbatch.recipes import legw_digits
from bigbatch.run import Run
from bigbatch.sweeps import interval

RATES = (0.0125, 0.05, 0.2)
TRUST_COEFFICIENTS = (0.025, 0.1, 0.4)


class Candidate(NamedTuple):
    what: str  # "rate" or "trust coefficient of LARS"
    value: float
    run: Run


def candidates(epochs: float | None = None) -> Iterator[Candidate]:
    """Every value to try, as a run on the held-out split."""
    shorter = [f"epochs={epochs}"] if epochs else []
    for rate in RATES:
        yield Candidate("rate", rate, _held_out(legw_digits.run(), [f"optimizer.lr={rate}", *shorter]))
    for trust in TRUST_COEFFICIENTS:
        run = _held_out(legw_digits.lars(), [f"optimizer.trust_coefficient={trust}", *shorter])
        yield Candidate("trust coefficient of LARS", trust, run)


def _held_out(run: Run, settings: list[str]) -> Run:
    dataset = {"name": NAME, "of": {"name": "digits"}, "fraction": 0.2}
    fields = run.model_dump(mode="json") | {"name": "demo-tuning", "dataset": dataset}
    return Run(**fields).with_settings(settings)


def tune(runs_dir: Path, quiet: bool, epochs: float | None = None) -> dict[str, float]:
    """Do it again and print every candidate; gives the value that each choice comes to."""
    tried = list(candidates(epochs))
    with workers(available_cores()) as pool, shown(not quiet):
        started = [pool.train([c.run.with_settings([f"seed={seed}"]) for seed in SEEDS], runs_dir) for c in tried]
        with station("tuning", len(tried)) as advance:
            for done, futures in enumerate(started, start=1):
                for future in futures:
                    future.result()
                advance(done)
    table = Table(
        "chosen", "value", "held-out accuracy", title=f"batch {legw_digits.BASELINE_BATCH}, {len(SEEDS)} seeds"
    )
    best: dict[str, tuple[float, float]] = {}
    for candidate, futures in zip(tried, started, strict=True):
        summaries = [future.result() for future in futures]
        accuracies = [s["test_accuracy"] if s["diverged_at_step"] is None else 0.0 for s in summaries]
        mean, _, high = interval(accuracies)
        table.add_row(
            candidate.what, f"{candidate.value:g}", f"{100 * mean:.2f} % ± {100 * ((high or mean) - mean):.2f}"
        )
        best[candidate.what] = max(best.get(candidate.what, (-1.0, 0.0)), (mean, candidate.value))
    chosen = {what: value for what, (_, value) in best.items()}
    Console().print(table)
    Console().print(", ".join(f"{what} {value:g}" for what, value in chosen.items()), highlight=False)
    return chosen
