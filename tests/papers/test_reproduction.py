"""Tasks, records and verdicts: what is done is not done again, and what did not hold is said."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest
from small import small_run

from bigbatch import filters
from bigbatch.cli import app
from bigbatch.errors import Problem
from bigbatch.papers.catalog import find_figure, list_figures, list_papers, read_card, select_figures, summary
from bigbatch.papers.drawing import Claim, Drawing, better, falls, not_worse, rises
from bigbatch.papers.plan import plan
from bigbatch.papers.records import Missing, Record, Results
from bigbatch.papers.reproduction import Place, reproduce, write_index
from bigbatch.papers.tasks import FilteredTraining, Filtering, Probing, repeat, run_of
from bigbatch.run import Run
from bigbatch.sweeps import WorkerOptions


def record(accuracy: float | None, **run) -> Record:
    result = {"test_accuracy": accuracy, "diverged_at_step": None} if accuracy is not None else {"diverged_at_step": 3}
    return Record("Run", small_run(**run).to_dict(), result)


def results(**cases) -> Results:
    return Results("smoke", {name: [record(value) for value in values] for name, values in cases.items()})


# -- what is done is not done again


def test_trainings_are_done_once_and_records_suffice(tmp_path):
    place = Place(tmp_path, WorkerOptions(jobs=2))
    tasks = [*repeat(small_run(epochs=1), 2), small_run(epochs=1, optimizer={"name": "sgd", "lr": 1e20})]
    place.complete(tasks)
    first, second, broken = (place.record(task) for task in tasks)
    assert [one.run["seed"] for one in (first, second)] == [0, 1]
    assert first.result["test_accuracy"] > 0.3
    assert [row["epoch"] for row in first.rows] == [1]  # evaluations, not steps
    assert broken.diverged
    assert place.list_left(tasks) == []
    # a folder that was cloned has records and no runs: nothing is trained again
    shutil.rmtree(tmp_path / "runs")
    before = (tmp_path / "records" / f"{tasks[0].hash}.json").stat().st_mtime_ns
    place.complete(tasks)
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "records" / f"{tasks[0].hash}.json").stat().st_mtime_ns == before


def test_a_probe_is_measured_at_the_first_step(tmp_path):
    place, task = Place(tmp_path, WorkerOptions()), Probing(small_run(), {"name": "ratio"})
    place.complete([task])
    found = place.record(task)
    assert found.result["head.weight"]["ratio"] > 0
    assert place.list_left([task]) == []
    assert Probing(small_run(seed=1), {"name": "ratio"}).hash != task.hash


def test_a_filter_waits_for_its_network_and_a_training_for_its_filter(tmp_path):
    place = Place(tmp_path, WorkerOptions(jobs=2))
    network = small_run(epochs=1)
    filtering = Filtering(network, {"reducer": "none", "drop": 0.2})
    tasks = [FilteredTraining(small_run(seed=5), filtering, keep) for keep in ("network", "random")]
    assert place.list_left(tasks) == [network, filtering, *tasks]
    place.complete(tasks)
    kept = filters.load(place.kept_file(filtering))
    assert place.record(filtering).result["dropped"] == int((~kept.mask).sum()) > 200
    by_network, at_random = (place.record(task) for task in tasks)
    assert by_network.result["samples"] == at_random.result["samples"] == 2 * int(kept.mask.sum())
    assert by_network.result["test_accuracy"] != at_random.result["test_accuracy"]
    assert by_network.run["filter"] is None  # a path means nothing on another machine
    # with all records nothing is left; without one of them, what its files were made from is done again
    shutil.rmtree(tmp_path / "runs")
    place.kept_file(filtering).unlink()
    assert place.list_left(tasks) == []
    (tmp_path / "records" / f"{tasks[0].hash}.json").unlink()
    assert place.list_left(tasks) == [network, filtering, tasks[0]]


def test_a_run_that_fails_is_named(tmp_path):
    place = Place(tmp_path, WorkerOptions())
    good, bad = small_run(epochs=1), small_run(name="bad", filter={"name": "kept", "path": "no.npz", "mask_hash": "x"})
    with pytest.raises(Problem, match=r"bad, batch 256, lr 0\.1: .*no\.npz"):
        place.complete([good, bad])
    assert place.record(good) is not None
    assert place.list_left([good, bad]) == [bad]


def test_a_damaged_record_is_a_problem_not_a_result(tmp_path):
    place, task = Place(tmp_path, WorkerOptions()), small_run()
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / f"{task.hash}.json").write_text("{")
    with pytest.raises(Problem, match=r"not a readable record.*remove it"):
        place.record(task)


# -- numbers and verdicts


def test_a_diverged_run_is_counted_beside_the_mean_and_as_nothing_in_comparisons():
    found = results(a=[0.9, 0.8], b=[0.9, None], c=[None])
    assert found.describe("a") == "85.00 %, 21.47 to 100.00 (n=2)"
    assert found.describe("b") == "90.00 % (n=1, 1 diverged)"
    assert found.describe("c") == "diverged"
    assert found.describe("d") == "not run"
    assert found.mean("b") == pytest.approx(0.45)
    assert found.mean("c", "train_loss") == math.inf
    with pytest.raises(Missing):
        found.mean("d")


def test_claims_hold_fail_or_stay_open():
    found = results(
        small=[0.90, 0.91, 0.92], same=[0.901, 0.909, 0.921], worse=[0.80, 0.81, 0.83], one=[0.9], gone=[None]
    )
    assert not_worse(found, "same", "small") is True
    assert not_worse(found, "worse", "small") is False
    assert not_worse(found, "gone", "small") is False
    assert not_worse(found, "one", "small") is None
    # pairs differ by -.20, +.10, 0: mean -.033, t(.975, 2)·s/√3 = .38, so the interval holds 0 and a large loss
    assert not_worse(results(a=[0.7, 0.9, 0.8], b=[0.9, 0.8, 0.8]), "a", "b") is None
    assert better(found, "small", "worse")
    assert not better(found, "gone", "worse")
    assert Claim.check("x", lambda: better(found, "small", "absent")).held is None
    assert [rises(values) for values in ([1, 2, 3], [1, 3, 2], [1, 1])] == [True, False, False]
    assert rises([1, 3, 2], slack=2)
    assert [falls(values) for values in ([3, 2, 1], [3, 2, 2])] == [True, False]


def test_the_verdict_follows_from_the_claims():
    def verdict(*held):
        return Drawing([Claim("", one) for one in held]).verdict

    assert verdict(True, True) == "reproduced"
    assert verdict(True, False) == verdict(True, False, None) == "partly"
    assert verdict(False) == "not reproduced"
    assert verdict(True, None) == "undecided"


def test_lower_perplexity_is_better():
    texts = [Record("Run", {}, {"test_perplexity": value, "diverged_at_step": None}) for value in (100.0, 120.0)]
    found = Results("smoke", {"low": [texts[0]], "high": [texts[1]]})
    assert better(found, "low", "high")
    assert not better(found, "high", "low")


# -- what is written


def test_a_figure_is_written_with_its_verdict_and_listed(tmp_path):
    (found,) = reproduce(["legw.fig2"], "smoke", tmp_path)
    assert found.verdict == "reproduced"
    folder = tmp_path / "smoke" / "figures" / "legw.fig2"
    assert {path.name for path in folder.iterdir()} >= {"figure.json", "README.md", "polynomial.svg", "multi_step.csv"}
    assert "| 32,768 | 2^5 | 32 | 10.0 | 10 |" in (folder / "README.md").read_text()
    index = write_index(tmp_path).read_text()
    assert "[legw.fig2](smoke/figures/legw.fig2/README.md)" in index
    assert index.count("not run beyond the smoke test") == sum(len(list_figures(paper)) for paper in list_papers()) - 1
    (tmp_path / "README.md").write_text("# Mine\n<!-- figures -->old<!-- end of figures -->\nafter\n")
    assert write_index(tmp_path).read_text().startswith("# Mine\n<!-- figures -->\n\n| figure")
    assert (tmp_path / "README.md").read_text().endswith("<!-- end of figures -->\nafter\n")
    (tmp_path / "README.md").write_text("# No marks\n")
    with pytest.raises(Problem, match="add them"):
        write_index(tmp_path)


def test_half_a_figure_can_be_drawn(tmp_path):
    (found,) = reproduce(["legw.table1"], "smoke", tmp_path, run=False)
    assert (found.verdict, found.tasks_done) == ("undecided", 0)
    one = next(iter(find_figure("legw.table1").runs("smoke").values()))[0]
    replace(record(0.5), run=one.to_dict(), about={"commit": "c", "hardware": {"cpu": "x", "threads": 1}}).write(
        tmp_path / "smoke" / "records" / f"{one.hash}.json"
    )
    (found,) = reproduce(["legw.table1"], "smoke", tmp_path, run=False)
    assert (found.verdict, found.tasks_done) == ("undecided so far", 1)
    assert json.loads((tmp_path / "smoke/figures/legw.table1/figure.json").read_text())["tables"][0]["rows"] == [
        [1024, "93.36 %", "32", "0.1", "50.00 % (n=1)"]
    ]


# -- the catalogue


@pytest.mark.parametrize("name", [name for paper in list_papers() for name in list_figures(paper)])
def test_every_figure_keeps_the_contract_at_every_scale(name):
    figure = find_figure(name)
    assert len(summary(name)) > 20
    assert figure.PAPER
    for scale in ("smoke", "laptop", "paper"):
        cases = figure.runs(scale)
        tasks = [task for case in cases.values() for task in case]
        assert len({task.hash for task in tasks}) >= len(tasks) / 2  # seeds differ; some cells are the same run
        assert all(isinstance(task, Run | Probing | Filtering | FilteredTraining) for task in tasks)
        assert figure.draw(Results(scale, {})).verdict in ("undecided", "reproduced", "partly")  # of formulas alone
    smoke = [run_of(task).dataset.name for case in figure.runs("smoke").values() for task in case]
    assert set(smoke) <= {"digits", "markov_text", "synthetic"}  # nothing is downloaded


@pytest.mark.parametrize("paper", list_papers())
def test_every_card_says_what_was_claimed_assumed_corrected_and_not_reproduced(paper):
    card = read_card(paper)
    for heading in ("Claims", "Equations", "Settings", "Assumed", "Corrections", "What held"):
        assert f"\n## {heading}" in card, heading


def test_names_are_refused_with_the_nearest():
    assert select_figures("legw.fig2") == ["legw.fig2"]
    assert select_figures("legw")[0] == "legw.fig1"
    with pytest.raises(Problem, match="no paper called 'lers'"):
        select_figures("lers")
    with pytest.raises(Problem, match=r"no figure called 'legw\.fig22'.*did you mean"):
        select_figures("legw.fig22")


def test_the_command_lists_plans_and_draws(tmp_path, capsys):
    def call(*arguments):
        assert app([str(argument) for argument in arguments], result_action="return_value") == 0
        return capsys.readouterr().out

    assert "legw.fig3" in call("list", "papers")
    assert "## Corrections" in call("list", "papers", "legw")
    assert "about 0 ms left" in call("reproduce", "legw.fig2", "--plan", "--out", tmp_path)
    assert not list(tmp_path.iterdir())
    assert "reproduced (smoke)" in call("reproduce", "legw.fig2", "--out", tmp_path)


@pytest.mark.papers
def test_a_plan_times_what_is_left(tmp_path):
    place = Place(tmp_path / "smoke", WorkerOptions())
    (first, *_), *_ = find_figure("legw.table1").runs("smoke").values()
    place.complete([first])
    (found,), hours = plan(["legw.table1"], "smoke", tmp_path, WorkerOptions())
    assert (found.tasks, found.done) == (3, 1)
    assert found.hours_done == place.record(first).seconds / 3600
    assert 0 < found.hours_left == hours < 1


@pytest.mark.papers
def test_imagenet_is_planned_without_its_images(tmp_path):
    (found,), hours = plan(["legw.table1"], "paper", tmp_path, WorkerOptions())
    assert (found.tasks, found.done, found.hours_done) == (18, 0, 0)
    assert hours > 18 * 90  # a ResNet-50 takes a CPU more than an hour for an epoch
