"""Searches: judged on held-out samples, resumed after kill -9 with the same trials, pruned."""

from __future__ import annotations

import os
import signal

import optuna
import pytest
from sweep_parts import ended_in, in_a_process, tiny_run

from bigbatch.artifacts.folder import Folder
from bigbatch.cli import main
from bigbatch.errors import Problem
from bigbatch.sweeps import SearchConfig, Sweep, WorkerOptions, parse_ranges
from bigbatch.sweeps.search import TrialQueue, _ignoring_finished_trial, hide_password

LRS = parse_ranges(["optimizer.lr=0.001..1:log"])


def search(**about):
    return SearchConfig(**({"ranges": LRS, "trials": 4, "held_out": 0.25} | about))


def open_queue(sweep, storage=None):
    return TrialQueue(sweep.points, sweep.config.search, sweep.folder, storage)


def lrs(sweep):
    """Of the trials that counted, in their order."""
    (study,) = open_queue(sweep).studies
    trials = [trial for trial in study.trials if trial.state != optuna.trial.TrialState.FAIL]
    return [trial.params["optimizer.lr"] for trial in sorted(trials, key=lambda trial: trial.user_attrs["rank"])]


def test_a_search_that_is_killed_goes_on_with_the_same_trials(tmp_path, monkeypatch, capsys):
    victim = tmp_path / "victim"
    optimizer = {"name": "sweep_parts:KillingSGD", "lr": 0.05, "victim": str(victim)}
    sweep = Sweep.create(tiny_run(optimizer=optimizer), tmp_path / "killed", search=search())

    def work():
        victim.write_text(str(os.getpid()))
        sweep.run(WorkerOptions())

    assert ended_in(in_a_process(work)) == -signal.SIGKILL
    assert len(lrs(sweep)) == 1
    sweep.run(WorkerOptions())
    whole = Sweep.create(tiny_run(optimizer=optimizer), tmp_path / "whole", search=search())
    whole.run(WorkerOptions())
    assert len(lrs(sweep)) == 4
    assert lrs(sweep) == lrs(whole)
    assert [row.value for row in sweep.run_results()] == [row.value for row in whole.run_results()]
    assert [row.status for row in sweep.run_results()] == ["done"] * 4

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["sweep", "killed", "--plan"])
    assert capsys.readouterr().out == "4 runs, none left\n"

    found = sweep.analyze()
    best = max(sweep.run_results(), key=lambda row: row.value)
    assert found.best.lr == best.lr
    assert any(best.label in note and "best of 4 trials" in note for note in found.notes)
    assert "held-out training samples" in found.notes[-1]
    # a quarter of the 72 training samples judges, the test samples are not looked at
    run = Folder(best.folder).run()
    assert run.dataset.fraction == 0.25
    assert Folder(best.folder).summary()["samples"] == 2 * 54


def test_an_unpromising_trial_is_stopped_and_kept_as_a_row(tmp_path):
    # a lr of 1e-9 stays where it began, below the others' median; from the fifth of twelve epochs on, when a third
    # of the training is over, it has 432 steps of 50 ms to be noticed in
    still = parse_ranges(["optimizer.lr=1e-9..2e-9"])
    optimizer = {"name": "sweep_parts:SlowingSGD", "lr": 1e-9, "at_step": 4 * 54}
    run = tiny_run(epochs=12, global_batch=1, micro_batch=1, optimizer=optimizer)
    sweep = Sweep.create(run, tmp_path, search=search(ranges=still, trials=7))
    (study,) = open_queue(sweep).studies
    for _ in range(6):
        others = optuna.trial.create_trial(
            params={"optimizer.lr": 1.5e-9},
            distributions={"optimizer.lr": optuna.distributions.FloatDistribution(1e-9, 2e-9)},
            value=0.99,
            intermediate_values=dict.fromkeys(range(1, 13), 0.99),
        )
        study.add_trial(others)
    sweep.run(WorkerOptions())
    states = optuna.trial.TrialState
    assert [trial.state for trial in study.trials] == [states.COMPLETE] * 6 + [states.PRUNED]
    (row,) = sweep.run_results()
    assert (row.status, row.value) == ("pruned", None)


def test_a_search_may_keep_its_trials_in_a_database(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    sweep = Sweep.create(tiny_run(), tmp_path / "sweep", search=search(trials=2, storage=hide_password(url)))
    first = open_queue(sweep, url)
    second = open_queue(sweep, url)
    taken = [first.claim_next(), second.claim_next()]
    assert None not in taken
    assert taken[0].run != taken[1].run
    # two were asked for, two are under way: nothing is left for anybody
    assert first.claim_next() is None
    assert second.claim_next() is None
    assert first.count_finished() == 0
    first.release(taken[0])
    again = second.claim_next()
    assert again.run == taken[0].run
    with pytest.raises(Problem, match="give it again as --storage"):
        open_queue(sweep)


def test_each_setting_has_a_search_of_its_own(tmp_path):
    variants = {"plain": {}, "heavy": {"optimizer": {"name": "momentum"}}}
    sweep = Sweep.create(tiny_run(), tmp_path, variants=variants, search=search(trials=2))
    todo = open_queue(sweep)
    assert todo.total == 4
    for point in [todo.claim_next() for _ in range(4)]:
        Folder(tmp_path / "runs" / point.folder_name).create(point.run)
    assert todo.claim_next() is None
    assert [row.variant for row in sweep.run_results()] == ["plain"] * 2 + ["heavy"] * 2
    assert len({row.lr for row in sweep.run_results()}) == 2  # both searches begin with the same draws
    assert all(0.001 <= row.settings["optimizer.lr"] <= 1 for row in sweep.run_results())


def test_a_trial_of_a_dead_worker_is_followed_by_one(tmp_path):
    sweep = Sweep.create(tiny_run(), tmp_path, search=search(trials=2))

    def die():
        open_queue(sweep).claim_next()
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended_in(in_a_process(die)) == -signal.SIGKILL
    first, second = open_queue(sweep), open_queue(sweep)
    points = [first.claim_next(), second.claim_next(), first.claim_next(), second.claim_next()]
    assert [point is None for point in points] == [False, False, True, True]
    assert points[0].run != points[1].run
    assert len(lrs(sweep)) == 2


def test_a_trial_that_is_still_trained_for_a_dead_worker_is_waited_for(tmp_path):
    sweep = Sweep.create(tiny_run(), tmp_path, search=search(trials=1))
    todo = open_queue(sweep)
    point = todo.claim_next()
    todo.release(point)
    with Folder(tmp_path / "runs" / point.folder_name).lock():
        assert [todo.claim_next() for _ in range(4)] == [None] * 4
        assert todo.count_finished() == 0
    assert todo.claim_next().run == point.run


def test_new_settings_that_another_worker_trains_are_not_tried_beside_it(tmp_path):
    one_choice = parse_ranges(["optimizer.lr=0.1"])
    sweep = Sweep.create(tiny_run(), tmp_path, search=search(ranges=one_choice, trials=2))
    first, second = open_queue(sweep), open_queue(sweep)
    with Folder(tmp_path / "runs" / first.claim_next().folder_name).lock():
        assert second.claim_next() is None
        assert second.count_finished() == 1


def test_only_an_end_that_others_gave_a_trial_is_passed_over(tmp_path):
    sweep = Sweep.create(tiny_run(), tmp_path, search=search(trials=2))
    mine, other = open_queue(sweep), open_queue(sweep)
    point = mine.claim_next()
    number = mine.mine[point.hash].trial.number
    with pytest.raises(ValueError, match="broken"), _ignoring_finished_trial(mine.studies[0], number):
        raise ValueError("broken")
    other.studies[0].tell(number, state=optuna.trial.TrialState.PRUNED)
    mine.finish(point, None)  # tells, too
    assert mine.count_left() == [1]
    with _ignoring_finished_trial(mine.studies[0], number) as ended:
        mine.studies[0].tell(number, 0.5)
    assert ended == [number]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["optimizer.lrr=0.1..1"], "has no option 'lrr'; did you mean 'lr'"),
        (["epochs=-1..5"], "epochs should be greater than 0"),
        (["global_batch=8..60"], "global_batch 60 is larger than the 54 training samples"),
    ],
)
def test_a_range_whose_ends_cannot_be_trained_is_refused(tmp_path, texts, sentence):
    with pytest.raises(Problem, match=sentence):
        Sweep.create(tiny_run(), tmp_path / "sweep", search=search(ranges=parse_ranges(texts)))
    assert not (tmp_path / "sweep").exists()


def test_a_password_is_not_written_down():
    assert hide_password("postgresql://me:secret@host/trials") == "postgresql://me:***@host/trials"
    with pytest.raises(Problem, match="not the address of a database"):
        hide_password("trials")
