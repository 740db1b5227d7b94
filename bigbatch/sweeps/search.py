"""A search: Optuna's TPE chooses the next settings by what the last ones gave; unpromising trials end early.

Trials are judged, and pruned, on training samples that are held out (Penn Treebank: on its validation text). The test
set is not looked at. Each setting of the sweep's variants and grids has a search of its own, as in the comprehensive
tuning of LEGW, section 5.3.

The storage (a journal file in the sweep's folder, or a database that machines without a common folder share) decides
who runs what. A trial whose worker died is marked as failed, which only one process can do; that one puts its settings
back into the queue, and whoever takes them goes on from the run's last checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.libraries import import_library
from bigbatch.run import Run
from bigbatch.sweeps import rows
from bigbatch.sweeps.asked import Point
from bigbatch.sweeps.child import Child
from bigbatch.sweeps.claims import BEAT_SECONDS, LEASE_SECONDS, Watch, dead_here, myself
from bigbatch.sweeps.ranges import Search
from bigbatch.sweeps.rows import MEASURES

if TYPE_CHECKING:
    from bigbatch.sweeps.sweep import Sweep

JOURNAL = "search.journal"
_TRIALS_BEFORE_PRUNING = 5
_SHARE_BEFORE_PRUNING = 1 / 3  # of a training: long warm-ups look bad before they are good
_LOOK_SECONDS = 0.5
_WORST = {"test_accuracy": 0.0, "test_perplexity": 1e12}  # what a diverged trial is worth to the sampler


@dataclass
class _Trial:
    point: Point
    study: Any
    trial: Any
    looked: float = 0.0


class Trials:
    """The queue of a search: the same questions that a fixed list of points answers."""

    def __init__(self, sweep: Sweep, storage: str | None, data_dir: Path | None) -> None:
        assert sweep.asked.search
        self.search: Search = sweep.asked.search
        self.folder = sweep.folder
        self.work = sweep.folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.bases = [held_out(point, self.search, data_dir) for point in sweep.points()]
        self._datasets = sorted({point.run.dataset.name for point in sweep.points()})
        self.optuna = _optuna()
        opened = self._storage(storage)
        self.studies = [self._study(base, opened) for base in self.bases]
        self.total = self.search.trials * len(self.bases)
        self.mine: dict[str, _Trial] = {}  # by the run's hash
        self._watch = Watch(LEASE_SECONDS)
        self._beats = 0
        self._beaten = time.monotonic()

    def _storage(self, url: str | None) -> Any:
        if url is None and self.search.storage is None:
            journal = self.optuna.storages.journal
            backend = journal.JournalFileBackend(str(self.folder / JOURNAL))
            return self.optuna.storages.JournalStorage(backend)
        if url is None:
            raise Problem(f"this search keeps its trials in {self.search.storage}: give it again as --storage")
        try:
            return self.optuna.storages.RDBStorage(url)
        except Exception as error:  # whatever the database's driver raises
            raise Problem(
                f"--storage {without_password(url)} cannot be opened ({str(error).splitlines()[0]}): check the "
                f"address, the database and its Python driver"
            ) from error

    def _study(self, base: Point, storage: Any) -> Any:
        steps = int(_SHARE_BEFORE_PRUNING * (base.run.epochs or 0))
        return self.optuna.create_study(
            study_name=base.folder_name,
            storage=storage,
            load_if_exists=True,
            direction="maximize" if MEASURES[rows.expected_measure(base)] else "minimize",
            pruner=self.optuna.pruners.MedianPruner(_TRIALS_BEFORE_PRUNING, n_warmup_steps=steps),
        )

    # -- what a worker asks

    def datasets(self) -> list[str]:
        return self._datasets

    def next(self) -> Point | None:
        for base, study in zip(self.bases, self.studies, strict=True):
            self._take_over(study)
            while self._open(study):
                trial = study.ask()
                is_new = "rank" not in trial.user_attrs
                rank = self._rank(study, trial)
                if rank >= self.search.trials:  # another worker was faster
                    study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
                    break
                point = self._point(base, study, trial, rank)
                if point is None:
                    continue
                trained = Folder(self.folder / "runs" / point.folder_name).lock_holder_pid() is not None
                if point.hash in self.mine or (trained and is_new):
                    self._useless(study, trial, "the same settings are being tried at this moment")
                    continue
                self.mine[point.hash] = _Trial(point, study, trial)
                if not trained:
                    return point
                self.give_back(point)  # what trained it for a dead worker is at its last checkpoint: look again later
                break
        return None

    def _point(self, base: Point, study: Any, trial: Any, rank: int) -> Point | None:
        trial.set_user_attr("owner", myself())
        # seeded by its place in the line, so that a search that was interrupted goes on as it would have gone
        study.sampler = self.optuna.samplers.TPESampler(seed=base.seed * 1_000_003 + rank)
        chosen = {found.field: _suggested(trial, found) for found in self.search.ranges}
        try:
            run = base.run.with_settings([f"{field}={json.dumps(value)}" for field, value in chosen.items()])
        except Problem as problem:
            self._useless(study, trial, str(problem))
            return None
        point = Point(base.variant, {**base.settings, **chosen}, base.seed, run)
        trial.set_user_attr("run", point.folder_name)
        return point

    def _useless(self, study: Any, trial: Any, why: str) -> None:
        with _others_may_have_ended(study, trial.number):
            trial.set_user_attr("problem", why)
            study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)

    def ended(self, point: Point, problem: str | None) -> None:
        held = self.mine.pop(point.hash)
        row = rows.of_point(point, self.folder / "runs")
        problem = row.problem if row.status == "damaged" else problem
        if problem is not None:
            atomic.write_text(self.work / f"{point.hash}.failed", json.dumps({"problem": problem}))
            self._useless(held.study, held.trial, problem)
            return
        with _others_may_have_ended(held.study, held.trial.number):
            if row.status == "done":
                held.study.tell(held.trial, row.metric)
            elif row.status == "diverged":
                held.study.tell(held.trial, _WORST[row.measure])
            else:
                atomic.write_text(self.work / f"{point.hash}.pruned", "{}")
                held.study.tell(held.trial, state=self.optuna.trial.TrialState.PRUNED)

    def give_back(self, point: Point) -> None:
        if point.hash in self.mine:
            held = self.mine.pop(point.hash)
            self._put_back(held.study, held.study.trials[held.trial.number])

    def unpromising(self, child: Child) -> bool:
        """Report the tests at the ends of epochs since the last look; Optuna's median pruner decides."""
        held = self.mine[child.point.hash]
        if time.monotonic() - held.looked < _LOOK_SECONDS:
            return False
        held.looked = time.monotonic()
        measure = rows.expected_measure(child.point)
        tests = [row for row in child.folder.metrics() if measure in row]
        for row in tests[child.tests_read :]:
            held.trial.report(row[measure], round(row["epoch"]))
        news, child.tests_read = len(tests) > child.tests_read, len(tests)
        return news and held.trial.should_prune()

    def finished(self) -> int:
        return self.total - sum(self.left())

    def left(self) -> list[int]:
        """How many trials are to be trained yet, for each setting."""
        states = (self.optuna.trial.TrialState.COMPLETE, self.optuna.trial.TrialState.PRUNED)
        return [max(0, self.search.trials - len(study.get_trials(False, states))) for study in self.studies]

    def beat(self) -> list[Point]:
        if time.monotonic() - self._beaten < BEAT_SECONDS:
            return []
        self._beaten = time.monotonic()
        self._beats += 1
        lost = []
        for held in self.mine.values():
            with _others_may_have_ended(held.study, held.trial.number) as ended:
                held.trial.set_user_attr("beat", self._beats)
            lost += [held.point] if ended else []
        for point in lost:
            del self.mine[point.hash]
        return lost

    # -- who runs what

    def _open(self, study: Any) -> bool:
        states = self.optuna.trial.TrialState
        begun = [trial for trial in study.get_trials(False) if trial.state != states.FAIL]
        return len(begun) < self.search.trials or any(trial.state == states.WAITING for trial in begun)

    def _rank(self, study: Any, trial: Any) -> int:
        """Its place among the trials that count; one that is tried again keeps its old place."""
        states = self.optuna.trial.TrialState
        if "rank" in trial.user_attrs:
            return trial.user_attrs["rank"]
        counted = [other for other in study.get_trials(False) if other.state != states.FAIL]
        rank = sum(other.number < trial.number for other in counted)
        trial.set_user_attr("rank", rank)
        return rank

    def _take_over(self, study: Any) -> None:
        for trial in study.get_trials(False, (self.optuna.trial.TrialState.RUNNING,)):
            if any(held.study is study and held.trial.number == trial.number for held in self.mine.values()):
                continue
            dead = dead_here(trial.user_attrs.get("owner", {}))
            beat = trial.user_attrs.get("beat", 0)
            if self._watch.expired(f"{study.study_name} {trial.number}", beat) if dead is None else dead:
                self._put_back(study, trial)

    def _put_back(self, study: Any, trial: Any) -> None:
        with _others_may_have_ended(study, trial.number) as ended:
            study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        if ended:
            return  # somebody else did, and puts it back
        if len(trial.params) == len(self.search.ranges):
            study.enqueue_trial(trial.params, user_attrs={"rank": trial.user_attrs.get("rank", trial.number)})


@contextmanager
def _others_may_have_ended(study: Any, number: int) -> Iterator[list[int]]:
    """Within it a trial may turn out to be final already: then what is yielded holds its number.

    Optuna raises several kinds of errors there, which mean other things elsewhere: so the state is looked at.
    """
    ended: list[int] = []
    try:
        yield ended
    except (ValueError, RuntimeError):
        if not study.get_trials(False)[number].state.is_finished():
            raise
        ended.append(number)


def _suggested(trial: Any, found: Any) -> Any:
    if found.choices:
        # Optuna's categories are plain values; anything else goes as JSON
        return json.loads(trial.suggest_categorical(found.field, [json.dumps(choice) for choice in found.choices]))
    if found.whole:
        return trial.suggest_int(found.field, int(found.low), int(found.high), log=found.log)
    return trial.suggest_float(found.field, found.low, found.high, log=found.log)


def held_out(point: Point, search: Search, data_dir: Path | None) -> Point:
    """The same point, judged on training samples that are held out, or on a text's own validation part."""
    dataset = point.run.dataset.model_dump(mode="json")
    if "evaluate" in dataset:
        dataset |= {"evaluate": "valid"}
    elif dataset["name"] != "held_out":
        dataset = {"name": "held_out", "of": dataset, "fraction": search.held_out, "seed": 0}
    fields = point.run.model_dump(mode="json") | {"dataset": dataset}
    return Point(point.variant, point.settings, point.seed, Run(**fields))


def to_check(points: list[Point], search: Search, data_dir: Path | None) -> Iterator[Point]:
    """What a search could ask for at the worst: each range's ends, at every setting."""
    for point in points:
        for found in search.ranges:
            for end in found.ends:
                judged = held_out(point, search, data_dir)
                run = judged.run.with_settings([f"{found.field}={json.dumps(end)}"])
                yield Point(point.variant, {**point.settings, found.field: end}, point.seed, run)


def without_password(url: str | None) -> str | None:
    if url is None:
        return None
    sqlalchemy = import_library("sqlalchemy", "--storage")
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except Exception as error:
        raise Problem("--storage is no address of a database: write postgresql://user@host/name") from error


def _optuna() -> Any:
    optuna = import_library("optuna", "--search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
