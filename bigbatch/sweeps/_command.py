"""What `bigbatch sweep` does around a sweep: from words to a question, and from answers to a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.recipes import load_run
from bigbatch.sweeps import grid, ranges, timing
from bigbatch.sweeps.answers import Answers, Group, format_group
from bigbatch.sweeps.asked import Point, read_variants
from bigbatch.sweeps.child import threads_each
from bigbatch.sweeps.display import duration
from bigbatch.sweeps.intervals import format_metric
from bigbatch.sweeps.ranges import Search
from bigbatch.sweeps.rows import FINISHED
from bigbatch.sweeps.sweep import Sweep

_SMALL_SWEEP = 40  # groups that are all shown


def asked_for(
    recipe_or_sweep: str,
    *,
    settings: Sequence[str],
    grids: Sequence[str],
    variants: Path | None,
    seeds: int | None,
    searches: Sequence[str],
    trials: int,
    held_out: float,
    storage: str | None,
    out: Path | None,
    save: bool,
    data_dir: Path | None,
    typed: Sequence[str],
) -> Sweep:
    """The sweep in a folder, or a new one, checked and saved."""
    if Sweep.is_one(recipe_or_sweep):
        if settings or grids or variants or searches or out:
            raise Problem(
                f"{recipe_or_sweep} is a sweep that knows its runs: name the recipe again, with --out "
                f"{recipe_or_sweep}, to ask for more"
            )
        known = Sweep.open(recipe_or_sweep)
        return known if seeds is None else _with_seeds(known, seeds, save, data_dir)
    if Path(recipe_or_sweep).is_dir():
        raise Problem(f"{recipe_or_sweep} is no sweep, as it has no sweep.json: name the folder of one, or a recipe")
    if seeds is not None and seeds < 1:
        raise Problem(f"--seeds {seeds} makes no sense: use 1 or more")
    run = load_run(recipe_or_sweep, settings)
    question: dict[str, Any] = {
        "grids": grid.parsed(grids),
        "variants": read_variants(variants) if variants else None,
        "seeds": seeds or 1,
        "search": _search(searches, trials, held_out, storage, seeds),
        "command": ("bigbatch", *typed),
    }
    folder = out or Path("sweeps") / run.name
    return _made(run, folder, question, save, data_dir)


def _made(run: Any, folder: Path, question: dict[str, Any], save: bool, data_dir: Path | None) -> Sweep:
    if save:
        return Sweep.ask(run, folder, **question, data_dir=data_dir)
    sweep = Sweep.draft(run, folder, **question)
    sweep.check(data_dir)
    return sweep


def _with_seeds(known: Sweep, seeds: int, save: bool, data_dir: Path | None) -> Sweep:
    """The same question with more seeds."""
    asked = known.asked
    question = {"grids": asked.grids, "variants": asked.variants, "search": asked.search, "title": asked.title}
    return _made(asked.base(), known.folder, question | {"seeds": seeds, "command": asked.command}, save, data_dir)


def _search(
    searches: Sequence[str], trials: int, held_out: float, storage: str | None, seeds: int | None
) -> Search | None:
    if not searches:
        if storage:
            raise Problem("--storage is where --search keeps its trials: add one, or leave it out")
        return None
    if seeds is not None and seeds > 1:
        raise Problem("a search trains every trial once: leave out --seeds, and confirm what it finds with --seeds 3")
    if trials < 1:
        raise Problem(f"--trials {trials} makes no sense: use 1 or more")
    if not 0 < held_out < 1:
        raise Problem(f"--held-out {held_out:g} cannot be held out: use a share between 0 and 1")
    from bigbatch.sweeps.search import without_password

    return Search(ranges=ranges.parsed(searches), trials=trials, held_out=held_out, storage=without_password(storage))


# -- what is printed


def show_plan(sweep: Sweep, jobs: int, data_dir: Path | None, storage: str | None) -> None:
    """How many runs, how many are left, and about how long that takes, from a few seconds of each kind."""
    threads = threads_each(jobs)
    left, total = _left(sweep, data_dir, storage)
    if not left:
        print(f"{total} runs, none left")
        return
    found = timing.estimated(left, threads, sweep.folder, data_dir)
    table = Table("global batch", "runs left", "seconds a step", "a run", "all of them", box=None)
    for kind in found.kinds:
        table.add_row(
            str(kind.global_batch),
            str(kind.runs),
            f"{kind.seconds_per_step:.4g}",
            duration(kind.seconds_per_run),
            duration(kind.runs * kind.seconds_per_run),
        )
    Console().print(table)
    alone = ", one run at a time: several slow each other down" if jobs > 1 else ""
    print(
        f"{total} runs, {len(left)} left: about {duration(found.seconds(jobs))} with {_counted(jobs, 'job')} of "
        f"{_counted(threads, 'thread')}, timed on this machine as busy as it was just now{alone}"
    )


def _left(sweep: Sweep, data_dir: Path | None, storage: str | None) -> tuple[list[Point], int]:
    """A point for every run that is to be trained yet, and how many runs there are in all."""
    points, search = sweep.points(), sweep.asked.search
    if search is None:
        runs = sweep.folder / "runs"
        return [point for point in points if Folder(runs / point.folder_name).status not in FINISHED], len(points)
    from bigbatch.sweeps.search import Trials, held_out

    counts = [search.trials] * len(points)
    if Sweep.is_one(sweep.folder):
        counts = Trials(sweep, storage, data_dir).left()
    judged = [held_out(point, search, data_dir) for point in points]
    return [point for point, count in zip(judged, counts, strict=True) for _ in range(count)], len(
        points
    ) * search.trials


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def show(sweep: Sweep, answers: Answers) -> None:
    """The table, then the answers in sentences."""
    table = Table(
        "setting", "batch", "lr", f"{answers.measured_as} (n)", "95 % interval", box=None, title=sweep.asked.title
    )
    for group in _few(answers):
        table.add_row(
            group.label,
            str(group.global_batch),
            f"{group.lr:g}",
            _what(group, answers.measure),
            "none"
            if group.low is None
            else f"{format_metric(group.low, answers.measure)} to {format_metric(group.high, answers.measure)}",
        )
    Console().print(table)
    notes = [(curve.label, curve.note) for curve in answers.curves]
    notes += [(preferred.label, preferred.note) for preferred in answers.preferred]
    for name, note in notes:
        print(f"{name}: {note}" if len(answers.curves) > 1 else note)
    for sentence in (*answers.edges, *answers.notes):
        print(sentence)
    print(f"{sweep.folder}: table.csv, answers.json, runs/")


def _few(answers: Answers) -> Sequence[Group]:
    if len(answers.groups) <= _SMALL_SWEEP:
        return answers.groups
    better_first = sorted((g for g in answers.groups if g.mean is not None), key=lambda g: -(g.mean or 0.0))
    if answers.measure == "test_perplexity":
        better_first.reverse()
    return better_first[:_SMALL_SWEEP]


def _what(group: Group, measure: str) -> str:
    if group.n:
        return format_group(group, measure)
    return "diverged" if group.diverged else "failed" if group.failed else "not there yet"
