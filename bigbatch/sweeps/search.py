"""A search: Optuna's TPE chooses the next settings from the results so far; unpromising trials are pruned.

Trials are judged, and pruned, on training samples that are held out (Penn Treebank: on its validation text). The test
set is not used. Each setting of the sweep's variants and grids has its own search, as in the comprehensive tuning of
LEGW, section 5.3.

The storage (a journal file in the sweep's folder, or a database that machines without a common folder share) decides
who runs what. A trial whose worker died is marked as failed, which only one process can do; that one puts its settings
back into the queue, and whoever takes them resumes from the run's last checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.libraries import import_library
from bigbatch.run import Run
from bigbatch.sweeps.claims import HEARTBEAT_SECONDS, LEASE_SECONDS, LeaseWatch, Owner
from bigbatch.sweeps.config import SearchConfig, SearchRange, SweepPoint, as_assignments
from bigbatch.sweeps.queue import write_failure
from bigbatch.sweeps.results import HIGHER_IS_BETTER, metric_of, read_result

JOURNAL = "search.journal"
_TRIALS_BEFORE_PRUNING = 5
_FRACTION_BEFORE_PRUNING = 1 / 3  # of a training: long warm-ups look bad before they are good
_PRUNE_POLL_SECONDS = 0.5
_WORST_VALUE = {"test_accuracy": 0.0, "test_perplexity": 1e12}  # what the sampler is told of a diverged trial


@dataclass
class _RunningTrial:
    point: SweepPoint
    study: Any
    trial: Any
    last_poll: float = 0.0
    tests_reported: int = 0


class TrialQueue:
    """The trials of a search, as a queue of runs."""

    def __init__(
        self, points: Sequence[SweepPoint], search: SearchConfig, sweep_folder: Path, storage: str | None = None
    ) -> None:
        self.search = search
        self.folder = sweep_folder
        self.work = sweep_folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.bases = [evaluate_on_held_out(point, search) for point in points]
        self.datasets = sorted({point.run.dataset.name for point in points})
        self.optuna = _import_optuna()
        self.states = self.optuna.trial.TrialState
        opened = self._open_storage(storage)
        self.studies = [self._create_study(base, opened) for base in self.bases]
        self.total = search.trials * len(self.bases)
        self.mine: dict[str, _RunningTrial] = {}  # by the run's hash
        self._watch = LeaseWatch(LEASE_SECONDS)
        self._heartbeats = 0
        self._last_heartbeat = time.monotonic()

    def _open_storage(self, url: str | None) -> Any:
        if url is None and self.search.storage is None:
            backend = self.optuna.storages.journal.JournalFileBackend(str(self.folder / JOURNAL))
            return self.optuna.storages.JournalStorage(backend)
        if url is None:
            raise Problem(f"this search keeps its trials in {self.search.storage}: give it again as --storage")
        try:
            return self.optuna.storages.RDBStorage(url)
        except Exception as error:  # whatever the database's driver raises
            raise Problem(
                f"--storage {hide_password(url)} cannot be opened ({str(error).splitlines()[0]}): check the "
                f"address, the database and its Python driver"
            ) from error

    def _create_study(self, base: SweepPoint, storage: Any) -> Any:
        warmup = int(_FRACTION_BEFORE_PRUNING * (base.run.epochs or 0))
        return self.optuna.create_study(
            study_name=base.folder_name,
            storage=storage,
            load_if_exists=True,
            direction="maximize" if HIGHER_IS_BETTER[metric_of(base)] else "minimize",
            pruner=self.optuna.pruners.MedianPruner(_TRIALS_BEFORE_PRUNING, n_warmup_steps=warmup),
        )

    # -- what a worker needs to know, as in PointQueue

    def claim_next(self) -> SweepPoint | None:
        for base, study in zip(self.bases, self.studies, strict=True):
            self._release_dead_trials(study)
            while self._has_trials_left(study):
                trial = study.ask()
                is_new = "rank" not in trial.user_attrs
                rank = self._trial_rank(study, trial)
                if rank >= self.search.trials:  # another worker was faster
                    study.tell(trial, state=self.states.FAIL)
                    break
                point = self._choose_settings(base, study, trial, rank)
                if point is None:
                    continue
                is_trained = Folder(self.folder / "runs" / point.folder_name).lock_holder_pid() is not None
                if point.hash in self.mine or (is_trained and is_new):
                    self._discard(study, trial, "the same settings are being trained now")
                    continue
                self.mine[point.hash] = _RunningTrial(point, study, trial)
                if not is_trained:
                    return point
                self.release(point)  # a process of a dead worker still writes its last checkpoint: try again later
                break
        return None

    def finish(self, point: SweepPoint, problem: str | None) -> None:
        running = self.mine.pop(point.hash)
        result = read_result(point, self.folder / "runs")
        problem = result.problem if result.status == "damaged" else problem
        if problem is not None:
            write_failure(self.work, point.hash, problem)
            self._discard(running.study, running.trial, problem)
            return
        with _ignoring_finished_trial(running.study, running.trial.number):
            if result.status == "done":
                running.study.tell(running.trial, result.value)
            elif result.status == "diverged":
                running.study.tell(running.trial, _WORST_VALUE[result.metric])
            else:
                atomic.write_text(self.work / f"{point.hash}.pruned", "{}")
                running.study.tell(running.trial, state=self.states.PRUNED)

    def release(self, point: SweepPoint) -> None:
        if point.hash in self.mine:
            running = self.mine.pop(point.hash)
            self._put_back(running.study, running.study.trials[running.trial.number])

    def should_prune(self, point: SweepPoint) -> bool:
        """Report the tests at the ends of epochs since the last call; Optuna's median pruner decides."""
        running = self.mine[point.hash]
        if time.monotonic() - running.last_poll < _PRUNE_POLL_SECONDS:
            return False
        running.last_poll = time.monotonic()
        metric = metric_of(point)
        tests = [row for row in Folder(self.folder / "runs" / point.folder_name).metrics() if metric in row]
        new = tests[running.tests_reported :]
        for row in new:
            running.trial.report(row[metric], round(row["epoch"]))
        running.tests_reported = len(tests)
        return bool(new and running.trial.should_prune())

    def count_finished(self) -> int:
        return self.total - sum(self.count_left())

    def count_left(self) -> list[int]:
        """Return how many trials are still to be trained, for each setting."""
        ended = (self.states.COMPLETE, self.states.PRUNED)
        return [max(0, self.search.trials - len(study.get_trials(False, ended))) for study in self.studies]

    def send_heartbeat(self) -> list[SweepPoint]:
        if time.monotonic() - self._last_heartbeat < HEARTBEAT_SECONDS:
            return []
        self._last_heartbeat = time.monotonic()
        self._heartbeats += 1
        lost = []
        for running in self.mine.values():
            with _ignoring_finished_trial(running.study, running.trial.number) as finished:
                running.trial.set_user_attr("beat", self._heartbeats)
            lost += [running.point] if finished else []
        for point in lost:
            del self.mine[point.hash]
        return lost

    # -- trials

    def _choose_settings(self, base: SweepPoint, study: Any, trial: Any, rank: int) -> SweepPoint | None:
        trial.set_user_attr("owner", asdict(Owner.current()))
        # seeded by the trial's rank, so that an interrupted search chooses what it would have chosen
        study.sampler = self.optuna.samplers.TPESampler(seed=base.seed * 1_000_003 + rank)
        chosen = {scope.field: _suggest(trial, scope) for scope in self.search.ranges}
        try:
            point = base.with_run(base.run.with_settings(as_assignments(chosen), typed=False), **chosen)
        except Problem as problem:
            self._discard(study, trial, str(problem))
            return None
        trial.set_user_attr("run", point.folder_name)
        return point

    def _discard(self, study: Any, trial: Any, reason: str) -> None:
        with _ignoring_finished_trial(study, trial.number):
            trial.set_user_attr("problem", reason)
            study.tell(trial, state=self.states.PRUNED)

    def _has_trials_left(self, study: Any) -> bool:
        begun = [trial for trial in study.get_trials(False) if trial.state != self.states.FAIL]
        return len(begun) < self.search.trials or any(trial.state == self.states.WAITING for trial in begun)

    def _trial_rank(self, study: Any, trial: Any) -> int:
        """Return its place among the trials that count; a trial that is resumed keeps its place."""
        if "rank" in trial.user_attrs:
            return int(trial.user_attrs["rank"])
        counted = [other for other in study.get_trials(False) if other.state != self.states.FAIL]
        rank = sum(bool(other.number < trial.number) for other in counted)
        trial.set_user_attr("rank", rank)
        return rank

    def _release_dead_trials(self, study: Any) -> None:
        mine = {running.trial.number for running in self.mine.values() if running.study is study}
        for trial in study.get_trials(False, (self.states.RUNNING,)):
            owner, heartbeat = Owner.from_fields(trial.user_attrs.get("owner")), trial.user_attrs.get("beat", 0)
            name = f"{study.study_name} {trial.number}"
            if trial.number not in mine and self._watch.is_abandoned(name, owner, heartbeat):
                self._put_back(study, trial)

    def _put_back(self, study: Any, trial: Any) -> None:
        with _ignoring_finished_trial(study, trial.number) as finished:
            study.tell(trial.number, state=self.states.FAIL)
        if finished:
            return  # another worker did it, and puts it back
        if len(trial.params) == len(self.search.ranges):
            study.enqueue_trial(trial.params, user_attrs={"rank": trial.user_attrs.get("rank", trial.number)})


@contextmanager
def _ignoring_finished_trial(study: Any, number: int) -> Iterator[list[int]]:
    """Ignore the error of changing a trial that another worker has finished: then the yielded list holds its number.

    Optuna raises several kinds of errors for it, which mean other things elsewhere: so the state is checked.
    """
    finished: list[int] = []
    try:
        yield finished
    except (ValueError, RuntimeError):
        if not study.get_trials(False)[number].state.is_finished():
            raise
        finished.append(number)


def _suggest(trial: Any, scope: SearchRange) -> Any:
    if scope.choices:
        # Optuna's categories are plain values; anything else is stored as JSON
        return json.loads(trial.suggest_categorical(scope.field, [json.dumps(choice) for choice in scope.choices]))
    low, high = scope.extremes
    suggest = trial.suggest_int if scope.whole else trial.suggest_float
    return suggest(scope.field, low, high, log=scope.log)


def hold_out(run: Run, fraction: float) -> Run:
    """Return the run tested on held-out training samples, or on the validation part of a text."""
    dataset = run.dataset.model_dump(mode="json")
    if "evaluate" in dataset:
        dataset |= {"evaluate": "valid"}
    elif dataset["name"] != "held_out":
        dataset = {"name": "held_out", "of": dataset, "fraction": fraction, "seed": 0}
    return Run(**(run.model_dump(mode="json") | {"dataset": dataset}))


def evaluate_on_held_out(point: SweepPoint, search: SearchConfig) -> SweepPoint:
    return point.with_run(hold_out(point.run, search.held_out))


def extreme_points(points: Sequence[SweepPoint], search: SearchConfig) -> Iterator[SweepPoint]:
    """Yield the runs at the ends of each range, for every setting: if these can be trained, all trials can."""
    for point in points:
        held_out = evaluate_on_held_out(point, search)
        for scope in search.ranges:
            for end in scope.extremes:
                run = held_out.run.with_settings(as_assignments({scope.field: end}), typed=False)
                yield point.with_run(run, **{scope.field: end})


def hide_password(url: str) -> str:
    sqlalchemy = import_library("sqlalchemy", "--storage")
    try:
        return str(sqlalchemy.engine.make_url(url).render_as_string(hide_password=True))
    except Exception as error:
        raise Problem("--storage is not the address of a database: write postgresql://user@host/name") from error


def _import_optuna() -> Any:
    optuna = import_library("optuna", "--search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
