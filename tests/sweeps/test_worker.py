"""Sweeps that really run: killed at several points, shared by two workers, stopped, resumed."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import forkserver

import pytest
import torch
from sweep_parts import Told, ended_in, in_a_process, table, tiny_run, trained_alone

from bigbatch.artifacts.folder import Folder
from bigbatch.errors import STOPPED, Problem, Stopped
from bigbatch.sweeps import Sweep, SweepConfig, WorkerOptions, plan, queue, results
from bigbatch.sweeps.claims import Claims
from bigbatch.sweeps.plan import RunTiming, SweepEstimate
from bigbatch.sweeps.worker import TrainingProcess


def killed_before(name, turn):
    """Work on a sweep in a process that kills itself, at its n-th turn, before a method of its queue does anything."""

    def work(sweep):
        turns = 0
        honest = getattr(queue.PointQueue, name)

        def dying(self, *arguments):
            nonlocal turns
            turns += 1
            if turns == turn:
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(self, *arguments)

        setattr(queue.PointQueue, name, dying)
        sweep.run(WorkerOptions(jobs=2))

    return work


def killed_by_its_training(sweep):
    """A training kills the worker that started it (see KillingSGD); the victim is named in a file."""
    (sweep.folder / "victim").write_text(str(os.getpid()))
    sweep.run(WorkerOptions(jobs=1))


def test_kill_9_at_several_points_ends_in_the_same_table(tmp_path):
    victim = str(tmp_path / "sweep" / "victim")
    variants = {
        "plain": {},
        "kills its worker": {"optimizer": {"name": "sweep_parts:KillingSGD", "lr": 0.05, "victim": victim}},
        "dies too": {"optimizer": {"name": "sweep_parts:KillingSGD", "lr": 0.05, "victim": victim, "itself": True}},
        "diverges": {"optimizer": {"name": "outside:ExplodingSGD", "lr": 0.05}},
    }
    sweep = Sweep.create(tiny_run(), tmp_path / "sweep", variants=variants, grids={"global_batch": (12, 24)})

    # between the first claim and its run; inside of a training, without it and with it; when a run has ended, before
    # anybody was told
    assert ended_in(in_a_process(killed_before("_is_finished", 2), sweep)) == -signal.SIGKILL
    assert ended_in(in_a_process(killed_by_its_training, sweep)) == -signal.SIGKILL
    # the training that killed its worker lives on and may have ended by now; what comes after it was not begun
    status = [row.status for row in sweep.run_results()]
    assert status[:2] == ["done"] * 2
    assert status[3:] == ["missing"] * 5
    assert ended_in(in_a_process(killed_by_its_training, sweep)) == -signal.SIGKILL
    assert ended_in(in_a_process(killed_before("finish", 2), sweep)) == -signal.SIGKILL
    sweep.run(WorkerOptions(jobs=2))

    expected = trained_alone(sweep.points, tmp_path / "alone")
    found = table((sweep.folder / "table.csv").read_text())
    assert found == table(results.format_table(expected, tmp_path / "alone"))
    assert [row["status"] for row in found] == ["done"] * 6 + ["diverged"] * 2
    # and it is made of the runs alone
    (sweep.folder / "table.csv").unlink()
    (sweep.folder / "results.json").unlink()
    Sweep.open(sweep.folder).write_results()
    assert table((sweep.folder / "table.csv").read_text()) == found
    assert sweep.analyze().groups[-1].diverged == 1


def test_two_workers_divide_the_points_and_one_that_dies_is_followed(tmp_path):
    """Both are held inside of a training; one is killed there; the other goes on with its point and all others."""
    told, gate = Told(tmp_path / "told"), tmp_path / "gate"
    os.mkfifo(gate)
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.05, "told": told.path, "gate": str(gate)}
    question = {"grids": {"global_batch": (4, 6, 8, 12, 18, 24)}}
    sweep = Sweep.create(tiny_run(optimizer=optimizer), tmp_path / "sweep", **question)
    workers = [in_a_process(lambda: Sweep.open(sweep.folder).run(WorkerOptions())) for _ in range(2)]

    begun = [told.trainer(), told.trainer()]
    claims = [Claims(sweep.folder / "work").is_claimed(point.hash) for point in sweep.points]
    assert claims == [True, True, False, False, False, False]
    assert len({_parent(pid) for pid in begun}) == 2  # not two of one worker
    os.kill(workers[0], signal.SIGKILL)
    _open_for_good(gate)
    assert [ended_in(pid) for pid in workers] == [-signal.SIGKILL, 0]

    assert [row.status for row in sweep.run_results()] == ["done"] * 6
    # one beginning for each point, and at most one more: the dead worker's, which may have ended before it was stopped
    assert len(begun) + told.rest() in (6, 7)
    # each has logs of its own, so that nobody takes another's last words for its own
    logs = [path.stem for path in (sweep.folder / "work").glob("*.log")]
    assert {int(name.rpartition("-")[2]) for name in logs} == set(workers)
    generations = sorted(path.name.rpartition("-")[2] for path in (sweep.folder / "work").glob("*.claim-*"))
    assert generations == ["1"] * 6 + ["2"]
    expected = trained_alone(SweepConfig.build(tiny_run(), **question).points(), tmp_path / "alone")
    assert [row.value for row in sweep.run_results()] == [row.value for row in expected]


def _parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def _open_for_good(gate):
    """Let those who wait at a FIFO pass, and put a plain file in its place."""
    writer = os.open(gate, os.O_WRONLY)
    open_gate = gate.with_name("open")
    open_gate.touch()
    open_gate.replace(gate)
    os.close(writer)


def test_ctrl_c_stops_every_run_with_a_checkpoint_and_says_how_to_go_on(tmp_path):
    told = Told(tmp_path / "told")
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.05, "told": told.path}
    endless = tiny_run(optimizer=optimizer, epochs=1_000_000)
    sweep = Sweep.create(endless, tmp_path / "sweep", grids={"global_batch": (4, 6, 8)})

    def interrupt():
        told.trainer()
        told.trainer()
        os.kill(os.getpid(), signal.SIGINT)

    listener = threading.Thread(target=interrupt)
    listener.start()
    with pytest.raises(Stopped, match=r"'bigbatch sweep .*sweep' resumes it"):
        sweep.run(WorkerOptions(jobs=2))
    listener.join()
    assert [row.status for row in sweep.run_results()] == ["stopped", "stopped", "missing"]
    for row in sweep.run_results()[:2]:
        assert any(Folder(row.folder).checkpoints.glob("step-*"))
        assert Folder(row.folder).lock_holder_pid() is None


def test_a_stop_that_comes_before_its_training_can_listen_is_heard(tmp_path):
    """The training would never end."""
    sweep = Sweep.create(tiny_run(epochs=1_000_000), tmp_path)
    (sweep.folder / "work").mkdir()
    process = TrainingProcess(sweep.points[0], sweep.folder, WorkerOptions(), [])
    assert process.stop() in (-signal.SIGTERM, STOPPED)


def test_a_run_outlives_the_process_that_forked_it_and_is_not_run_twice(tmp_path):
    told, gate = Told(tmp_path / "told"), tmp_path / "gate"
    os.mkfifo(gate)
    optimizer = {"name": "sweep_parts:ToldSGD", "lr": 0.05, "told": told.path, "gate": str(gate)}
    sweep = Sweep.create(tiny_run(optimizer=optimizer), tmp_path / "sweep")

    def kill_the_server():
        told.trainer()
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        _open_for_good(gate)

    killer = threading.Thread(target=kill_the_server)
    killer.start()
    sweep.run(WorkerOptions())
    killer.join()
    assert [row.status for row in sweep.run_results()] == ["done"]
    assert told.rest() == 0


def test_a_failed_run_is_a_row_with_its_sentence_and_is_tried_again_by_the_next_worker(tmp_path):
    marker = tmp_path / "nowhere" / "told"
    variants = {
        "fine": {},
        "fails": {"optimizer": {"name": "sweep_parts:ToldSGD", "lr": 0.05, "told": str(marker)}},
        "killed": {"optimizer": {"name": "outside:DyingSGD", "lr": 0.05, "marker": str(tmp_path / "m"), "at_step": 3}},
    }
    sweep = Sweep.create(tiny_run(), tmp_path / "sweep", variants=variants)
    sweep.run(WorkerOptions())
    fine, fails, killed = sweep.run_results()
    assert (fine.status, fails.status, killed.status) == ("done", "failed", "done")  # a killed one goes on
    assert "No such file or directory" in fails.problem
    assert fails.value is None
    assert sweep.analyze().groups[1].failed == 1
    marker.parent.mkdir()
    fine_summary = fine.folder / "summary.json"
    written = fine_summary.stat().st_mtime_ns
    sweep.run(WorkerOptions())
    assert [row.status for row in sweep.run_results()] == ["done"] * 3
    assert fine_summary.stat().st_mtime_ns == written  # what is finished is not run again
    assert marker.read_text().count("\n") == 1


def test_a_run_that_somebody_trains_by_hand_is_left_alone(tmp_path):
    sweep = Sweep.create(tiny_run(), tmp_path, grids={"global_batch": (4, 6)})
    first, second = sweep.points
    todo = queue.PointQueue(sweep.points, sweep.folder)
    with Folder(sweep.folder / "runs" / first.folder_name).lock():
        assert todo.claim_next() == second
        assert todo.claim_next() is None
        assert todo.count_finished() == 0
    assert todo.claim_next() == first


def test_threads_are_divided(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert WorkerOptions(1).threads_per_run == cores
    assert WorkerOptions(2 * cores).threads_per_run == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert WorkerOptions(2).threads_per_run == 3


def test_no_jobs(tmp_path):
    with pytest.raises(Problem, match="--jobs must be at least 1, got 0"):
        Sweep.create(tiny_run(), tmp_path).run(WorkerOptions(jobs=0))


def test_a_plan_counts_steps_of_the_usual_length_and_the_way_to_the_first(tmp_path):
    run = tiny_run(
        epochs=2.5, dataset="sweep_parts:slow_to_load", optimizer={"name": "sweep_parts:UnevenSGD", "lr": 0.1}
    )
    sweep = Sweep.create(run, tmp_path, grids={"global_batch": (12, 28), "optimizer.lr": (0.1, 0.2)}, seeds=3)
    found = plan.estimate_time(sweep.points, sweep.folder, WorkerOptions())
    # 72 samples: 6 + 6 + 3 steps of 12, 3 + 3 + 2 of 28; a test and a checkpoint at three ends
    assert [(k.global_batch, k.runs, k.steps, k.epoch_ends) for k in found.kinds] == [(12, 6, 15, 3), (28, 6, 8, 3)]
    for kind in found.kinds:  # sleeps are never shorter than asked for: these are the least that is right
        assert kind.seconds_per_step >= 0.02
        assert kind.seconds_to_begin >= 0.5
        assert kind.seconds_per_run == pytest.approx(
            kind.seconds_to_begin + kind.steps * kind.seconds_per_step + 3 * kind.seconds_per_epoch_end
        )
        assert kind.seconds_per_epoch_end > 0
    assert torch.get_num_threads() == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep.json"]


def test_runs_at_once_take_a_part_of_the_time_but_no_less_than_the_longest():
    long, short = RunTiming(8, 1, 10, 2, 3.0, 0.5, 1.0), RunTiming(64, 4, 4, 1, 0.5, 0.25, 0.5)
    assert (long.seconds_per_run, short.seconds_per_run) == (3 + 10 * 0.5 + 2, 0.5 + 4 * 0.25 + 0.5)
    found = SweepEstimate(4.0, [long, short])
    assert found.seconds(1) == 4 + 10 + 4 * 2
    assert found.seconds(9) == 4 + 10
    assert SweepEstimate(4.0, [short]).seconds(2) == 4 + 4
    assert SweepEstimate(0.0, []).seconds(2) == 0


def test_a_plan_does_not_stumble_over_an_lr_that_diverges(tmp_path):
    sweep = Sweep.create(tiny_run(optimizer={"name": "outside:ExplodingSGD", "lr": 0.1}), tmp_path)
    (kind,) = plan.estimate_time(sweep.points, sweep.folder, WorkerOptions()).kinds
    assert (kind.steps, kind.seconds_per_step > 0) == (12, True)


def test_a_plan_does_not_run_a_step_that_takes_too_long(tmp_path, monkeypatch):
    """A step of minutes is computed from a few samples, and is a lower bound."""
    monkeypatch.setattr(plan, "_LONGEST_SECONDS", 0.0)
    monkeypatch.setattr(plan, "_time_steps", lambda training: pytest.fail("a step was run"))
    monkeypatch.setattr(plan, "evaluate", lambda training: pytest.fail("a test was run"))
    sweep = Sweep.create(tiny_run(), tmp_path)
    (kind,) = plan.estimate_time(sweep.points, sweep.folder, WorkerOptions()).kinds
    assert kind.cut
    assert kind.seconds_per_step > 0
    assert kind.seconds_per_run > kind.steps * kind.seconds_per_step
