"""A sweep and its folder: sweep.json (what was asked), runs/, work/ (claims, logs); answers.json and table.csv are
made of the runs and can be made again at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.sweeps import display, queue, rows
from bigbatch.sweeps.answers import Answers, Group, answers, damages
from bigbatch.sweeps.asked import Asked, Point, from_json
from bigbatch.sweeps.claims import Claims
from bigbatch.sweeps.ranges import Search
from bigbatch.sweeps.rows import Row

QUESTION = "sweep.json"


class Sweep:
    """One question and the runs that answer it."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.folder = folder
        self.asked = asked

    @classmethod
    def open(cls, folder: Path | str) -> Sweep:
        return cls(Path(folder), from_json(Path(folder) / QUESTION))

    @staticmethod
    def is_one(folder: Path | str) -> bool:
        return (Path(folder) / QUESTION).is_file()

    @classmethod
    def ask(
        cls,
        run: Run,
        folder: Path | str,
        *,
        grids: Mapping[str, Iterable[Any]] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
        seeds: int = 1,
        search: Search | None = None,
        title: str = "",
        command: Iterable[str] = (),
        data_dir: Path | None = None,
    ) -> Sweep:
        """Make a sweep's folder, or find it again; what is asked may grow, like from one seed to three.

        Wrong fields and values, batches larger than the data and warm-ups longer than the training are refused here.
        """
        sweep = cls.draft(
            run, folder, grids=grids, variants=variants, seeds=seeds, search=search, title=title, command=command
        )
        sweep.check(data_dir)
        sweep._save_question()
        return sweep

    @classmethod
    def draft(
        cls,
        run: Run,
        folder: Path | str,
        *,
        grids: Mapping[str, Iterable[Any]] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
        seeds: int = 1,
        search: Search | None = None,
        title: str = "",
        command: Iterable[str] = (),
    ) -> Sweep:
        """A sweep that is on no disk yet."""
        from bigbatch.engines import fit_run

        try:
            asked = Asked(
                title=title or run.name,
                run=fit_run(run).model_dump(mode="json"),
                grids={field: tuple(values) for field, values in (grids or {}).items()},
                variants={name: dict(changes) for name, changes in (variants or {}).items()},
                seeds=seeds,
                search=search,
                command=tuple(command),
            )
        except ValidationError as error:
            raise Problem(parts.explain(error, "a sweep", Asked)) from error
        for field, values in asked.grids.items():
            if not values:
                raise Problem(f"the grid of {field} has no values: give some")
        return cls(Path(folder), asked)

    def check(self, data_dir: Path | None = None) -> None:
        """Refuse what could not be trained, before anything is."""
        from bigbatch.sweeps import preflight, search

        asked = self.asked.search
        preflight.check(search.to_check(self.points(), asked, data_dir) if asked else self.points(), data_dir)

    @cached_property
    def _points(self) -> list[Point]:
        return self.asked.points()

    def points(self) -> list[Point]:
        """Every run that was asked for; of a search, the settings that each have a search of their own."""
        return self._points

    # -- reading

    def rows(self) -> list[Row]:
        """What became of each point, read from the runs' folders now."""
        if self.asked.search:
            from bigbatch.sweeps.trials import rows_of_trials

            return rows_of_trials(self)
        claims = Claims(self.folder / "work")
        return [self._row(point, claims) for point in self.points()]

    def _row(self, point: Point, claims: Claims) -> Row:
        row = rows.of_point(point, self.folder / "runs")
        if row.status in rows.FINISHED:
            return row
        if claims.held(point.hash):
            return rows.of_point(point, self.folder / "runs", "running")
        failed = queue.failure(self.folder / "work", point.hash)
        if failed:
            return rows.of_point(point, self.folder / "runs", "failed", failed["problem"])
        if row.status == "running":  # it says so itself, but a kill -9 leaves no time to say otherwise
            trained = rows.Folder(row.folder).lock_holder_pid() is not None
            return rows.of_point(point, self.folder / "runs", "running" if trained else "stopped")
        return row

    def answers(self, baseline_batch: int | None = None) -> Answers:
        return self._answers(self.rows(), baseline_batch)

    def _answers(self, table: list[Row], baseline_batch: int | None = None) -> Answers:
        found = answers(table, baseline_batch)
        if self.asked.search is None:
            return found
        from bigbatch.sweeps.trials import measured_as, sentences

        notes = (*sentences(table, self.asked.search, self.points()), *damages(table))
        return found.model_copy(update={"measured_as": measured_as(found.measure), "edges": (), "notes": notes})

    def best(self) -> tuple[Group | None, str]:
        """The best setting so far, and what it is measured in."""
        found = self.answers()
        return found.best, found.measure

    # -- writing

    def write(self) -> Answers:
        """answers.json and table.csv, made anew from the runs."""
        table = self.rows()
        found = self._answers(table)
        atomic.write_text(self.folder / "answers.json", found.model_dump_json(indent=2) + "\n")
        atomic.write_text(self.folder / "table.csv", rows.as_csv(table, self.folder))
        return found

    def _save_question(self) -> None:
        if self.is_one(self.folder):
            self._refuse_to_shrink(Sweep.open(self.folder))
        elif self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / "runs").is_dir():
            raise Problem(f"{self.folder} holds something else than a sweep: choose another --out")
        atomic.write_text(self.folder / QUESTION, self.asked.model_dump_json(indent=2) + "\n")

    def _refuse_to_shrink(self, before: Sweep) -> None:
        dropped = {point.hash: point for point in before.points()}
        for point in self.points():
            dropped.pop(point.hash, None)
        if dropped or (before.asked.search is None) != (self.asked.search is None):
            example = next(iter(dropped.values()), before.points()[0])
            raise Problem(
                f"{self.folder} is a sweep with {len(dropped) or 'other'} runs that are not asked for now "
                f"({example.label}, seed {example.seed}): ask for them too, or choose another --out"
            )
        if before.asked.search and self.asked.search and before.asked.search.ranges != self.asked.search.ranges:
            raise Problem(f"{self.folder} is a search over other ranges: choose another --out")

    # -- working

    def work(
        self,
        *,
        jobs: int = 1,
        data_dir: Path | None = None,
        checkpoint_minutes: float = 10.0,
        storage: str | None = None,
        quiet: bool = True,
    ) -> Answers:
        """Run what is missing, `jobs` at once, beside any other workers on this folder, and answer.

        Stopped by Ctrl-C or SIGTERM, all runs write a checkpoint first (`errors.Stopped`).
        """
        from bigbatch.sweeps.worker import Worker

        if self.asked.search:
            from bigbatch.sweeps.search import Trials

            todo: queue.Queue = Trials(self, storage, data_dir)
        else:
            todo = queue.Points(self.points(), self.folder)
        options = ["--checkpoint-minutes", str(checkpoint_minutes)]
        options += ["--data-dir", str(data_dir)] if data_dir else []
        shown = display.choose(quiet, todo.total, self.best)
        Worker(todo, self.folder, jobs, options, shown, self.write).to_the_end()
        return self.write()
