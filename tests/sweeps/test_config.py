"""What people write for a grid, a range and a variant, against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_parts import tiny_run

from bigbatch import parts, schedules
from bigbatch.errors import Problem
from bigbatch.sweeps import Sweep, SweepConfig, parse_ranges
from bigbatch.sweeps.config import parse_grids, read_variants


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("b=16,32,...,512", [16, 32, 64, 128, 256, 512]),
        # Gahlot's: the last value is no power of two and belongs to the grid all the same
        ("b=16,32,...,20480", [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 20480]),
        ("b=128,...,1024", [128, 256, 512, 1024]),  # one value doubles
        ("b=1024,...,128", [1024, 512, 256, 128]),  # or halves
        ("b=0.1,0.3,...,2.7", [0.1, 0.3, 0.9, 2.7]),
        ("b=1,0.1,...,0.001", [1, 0.1, 0.01, 0.001]),
        ("b=1,2,3,...,6", [1, 2, 3, 4, 5, 6]),  # three values that rise alike: a difference
        ("b=1,2,4,...,16", [1, 2, 4, 8, 16]),
        ("b=0,5,...,20", [0, 5, 10, 15, 20]),  # no ratio leads away from zero
        ("b=0.1,0.2,0.3,...,0.6", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        ("b=lars,momentum", ["lars", "momentum"]),
        ("b=true,null,3", [True, None, 3]),
        ('b={"name":"lars","lr":0.1},[1,2],"a,b"', [{"name": "lars", "lr": 0.1}, [1, 2], "a,b"]),
    ],
)
def test_values_of_a_grid(text, values):
    assert parse_grids([text]) == {"b": tuple(values)}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("global_batch", "'global_batch' is not a setting: write FIELD=VALUE"),
        ("=1,2", "is not a setting"),
        ("b=", "has no values"),
        ("b=1,,2", "has an empty value"),
        ("b=1,2,2", "has 2 twice"),
        ("b=...,5", "'...' stands between values and the last one"),
        ("b=1,2,...", "'...' stands between values and the last one"),
        ("b=1,2,...,8,16", "'...' stands between values and the last one"),
        ("b=a,...,c", "'...' continues numbers, and 'a' is not a number"),
        ("b=1,2,...,0", "does not lead from 2 to 0"),
        ("b=4,4,...,8", "does not lead from 4 to 8"),
        ("b=1,2,5,...,9", "does not lead from 5 to 9"),
        ("b=1,1.0001,...,100000", "more than 10000 values"),
        ("seed=1,2", "use --seeds"),
    ],
)
def test_no_grid(text, sentence):
    with pytest.raises(Problem, match=sentence.replace("(", r"\(").replace(".", r"\.")):
        parse_grids([text])


def test_a_field_has_one_grid():
    with pytest.raises(Problem, match="given twice"):
        parse_grids(["b=1", "b=2"])


def test_grids_and_variants_multiply_and_one_seed_of_all_comes_first():
    config = SweepConfig.build(
        tiny_run(seed=4),
        grids={"global_batch": (4, 8), "optimizer.lr": (0.1, 0.2, 0.3)},
        variants={"plain": {}, "heavy": {"optimizer": {"name": "momentum", "momentum": 0.8}, "epochs": 3}},
        seeds=2,
    )
    points = config.points()
    assert len(points) == 2 * 2 * 3 * 2
    assert [point.seed for point in points] == [4] * 12 + [5] * 12
    assert [point.label for point in points[:4]] == [
        "plain, global_batch=4 optimizer.lr=0.1",
        "plain, global_batch=4 optimizer.lr=0.2",
        "plain, global_batch=4 optimizer.lr=0.3",
        "plain, global_batch=8 optimizer.lr=0.1",
    ]
    heavy = points[6].run
    assert (heavy.optimizer.name, heavy.optimizer.lr, heavy.optimizer.momentum, heavy.epochs) == (
        "momentum",
        0.1,
        0.8,
        3,
    )
    assert points[6].run.seed == 4
    assert points[18].run.seed == 5
    # equal but for seed and batch: one curve
    assert (
        points[0].hash_without_batch
        == points[3].hash_without_batch
        == points[12].hash_without_batch
        != points[1].hash_without_batch
    )


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"grids": {"global_bath": (4,)}}, "global_bath=4: a run has no option 'global_bath'; did you mean"),
        ({"grids": {"optimizer.lrr": (0.1,)}}, "optimizer 'sgd' has no option 'lrr'; did you mean 'lr'"),
        ({"grids": {"global_batch": (4, "many")}}, "global_batch=many: no batch size called 'many'"),
        ({"grids": {"optimizer.lr": (0.1, "fast")}}, "optimizer.lr=fast: optimizer 'sgd': lr .*got 'fast'"),
        ({"grids": {"epochs": (-1,)}}, "epochs should be greater than 0; got -1"),
        ({"grids": {"global_batch": ()}}, "the grid of global_batch has no values"),
        ({"grids": {"global_batch": (4, 800)}}, "global_batch=800: global_batch 800 is larger than the 72"),
        ({"variants": {"a": {}, "b": {"epochs": 2}}}, "'b' and 'a' are the same run"),
        ({"variants": {"a": {"optimizer": "lasr"}}}, "a: no optimizer called 'lasr'; did you mean 'lars'"),
        (
            {"variants": {"long": {"schedule": {"name": "legw", "baseline_batch": 4, "warmup_epochs": 1}}}},
            "long: warmup_epochs is 3 at global batch 12, longer than the training of 2 epochs",
        ),
        ({"seeds": 0}, "seeds should be greater than 0; got 0"),
    ],
)
def test_a_wrong_question_is_refused_before_anything_is_written(tmp_path, question, sentence):
    with pytest.raises(Problem, match=sentence):
        Sweep.create(tiny_run(), tmp_path / "sweep", **question)
    assert not (tmp_path / "sweep").exists()


def test_a_question_may_grow_and_not_shrink(tmp_path):
    Sweep.create(tiny_run(), tmp_path, grids={"global_batch": (4, 8)})
    grown = Sweep.create(tiny_run(), tmp_path, grids={"global_batch": (4, 6, 8)}, seeds=2)
    assert len(Sweep.open(tmp_path).points) == len(grown.points) == 6
    with pytest.raises(Problem, match=r"4 runs that are missing now \(global_batch=6, seed 0\)"):
        Sweep.create(tiny_run(), tmp_path, grids={"global_batch": (4, 8)})
    assert len(Sweep.open(tmp_path).points) == 6


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(Problem, match="holds something other than a sweep"):
        Sweep.create(tiny_run(), tmp_path)
    with pytest.raises(Problem, match=r"is not a sweep, it has no sweep\.json"):
        Sweep.open(tmp_path)


def test_variants_come_from_a_file(tmp_path):
    path = tmp_path / "variants.json"
    path.write_text('{"a": {"epochs": 3}, "b": {}}')
    assert read_variants(path) == {"a": {"epochs": 3}, "b": {}}
    for text, sentence in [("[1]", "does not have the form"), ("{}", "has no variants"), ("{", "cannot be read")]:
        path.write_text(text)
        with pytest.raises(Problem, match=sentence):
            read_variants(path)


def test_the_committed_mnist_sweep_asks_what_it_says():
    variants = read_variants(Path(__file__).parents[2] / "results" / "legw_mnist" / "variants.json")
    config = SweepConfig.build(parts.find("recipes", "legw_mnist").run(), variants=variants)
    points = {point.variant: point for point in config.points()}

    def peak(name):
        return max(point.lr for point in schedules.plan(points[name].run, 25.0, 1000))

    assert all(name.endswith(f" {point.global_batch}") for name, point in points.items())
    # k = 64: √k · 0.1 = 0.8 and k · 0.1 = 6.4
    assert peak("LEGW 8192") == pytest.approx(0.8)
    assert peak("same rate 8192") == pytest.approx(0.1)
    assert peak("linear scaling 8192") == pytest.approx(6.4)
    assert peak("Adam 8192") == pytest.approx(0.001)
    legw = {point.hash_without_batch for name, point in points.items() if name.removeprefix("LEGW ").isdigit()}
    assert len(legw) == 1
    assert len({point.hash_without_batch for point in points.values()}) == 8


def test_ranges_of_a_search():
    lr, units, name = parse_ranges(["optimizer.lr=0.01..1:log", "model.hidden=16..64", "optimizer=lars,adam"])
    assert (lr.low, lr.high, lr.log, lr.whole) == (0.01, 1, True, False)
    assert (units.low, units.high, units.log, units.whole) == (16, 64, False, True)
    assert name.choices == ("lars", "adam")
    # 5 % of two decades is a tenth of a decade: 0.01 · 10^0.1 = 0.0126
    assert [lr.nearby_end(value) for value in (0.0125, 0.013, 0.5, 0.9)] == ["lower", None, None, "upper"]
    assert [units.nearby_end(value) for value in (18, 19, 61, 62)] == ["lower", None, None, "upper"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("optimizer.lr", "is not a setting"),
        ("optimizer.lr=1..0.1", "from a number to a larger one"),
        ("optimizer.lr=a..b", "from a number to a larger one"),
        ("optimizer.lr=0..1:log", "no logarithm at 0"),
        ("optimizer.lr=0.1..1:linear", "write ':log', or nothing"),
        ("seed=1..5", "not a setting to choose"),
    ],
)
def test_no_range(text, sentence):
    with pytest.raises(Problem, match=sentence):
        parse_ranges([text])


def test_runs_scaled_as_a_whole_are_one_curve():
    run = tiny_run().with_settings(["optimizer=momentum", "global_batch=6"])
    config = SweepConfig.build(run, variants={"": {}, "adam": {"optimizer": "adam"}}, grids={"scale_batch": (1, 2, 4)})
    points = config.points()
    assert [point.global_batch for point in points] == [6, 12, 24] * 2
    assert len({point.run.optimizer.lr for point in points}) == 6
    assert len({point.hash_without_batch for point in points}) == 2
