"""The number of ranks that ends a training first, on a model that can be computed by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hand import pair

from bigbatch.errors import Problem
from bigbatch.scaling import training_time
from bigbatch.scaling.ddp import SimulatedDDP
from bigbatch.scaling.profile import Layer, Profile
from bigbatch.scaling.report import describe_plan
from bigbatch.scaling.training_time import NoiseScale, TrainingTimeEstimator, parse_noise_scale, shortest


def profiles(rank_batch: int) -> Profile:
    """30 µs a sample, and 1 MB that is ready at the very end: 1100 µs on two ranks, all of it exposed."""
    return Profile("m", rank_batch, 10.0 * rank_batch, (Layer("a", 20.0 * rank_batch, (1_000_000,)),))


def planner(**fields: Any) -> TrainingTimeEstimator:
    about: dict[str, Any] = {
        "profiles": profiles,
        "engine": SimulatedDDP(),
        "machine": pair(),
        "global_batch": 96,
        "most_rank_batch": 96,
        "noise": NoiseScale(304.0),
    }
    return TrainingTimeEstimator(**(about | fields))


def choice(times: list[training_time.TrainingTime], rule: str) -> training_time.TrainingTime:
    return next(one for one in times if one.batch_rule == rule)


def test_two_ranks_by_hand():
    found = planner().estimate([2])
    # alone: 96 · 30 = 2880. Divided: 48 · 30 + 1100 = 2540 for the same samples
    divided = choice(found, "divided")
    assert (divided.global_batch, divided.rank_batch, divided.samples) == (96, 48, 1)
    assert divided.step_us == 2540
    assert divided.time == pytest.approx(2540 / 2880)
    # filled: 192 in 3980, (304 + 192)/(304 + 96) = 1.24 times the samples in half the steps for each
    filled = choice(found, "filled")
    assert (filled.global_batch, filled.step_us) == (192, 3980)
    assert filled.samples == pytest.approx(1.24)
    assert filled.time == pytest.approx(1.24 * 96 / 192 * 3980 / 2880)
    # in between, 64 each: 128 in 3020, 432/400 = 1.08 times the samples: 0.849, where the others have 0.882 and 0.857
    chosen = choice(found, "best")
    assert chosen.global_batch == 128
    assert chosen.time == pytest.approx(1.08 * 96 / 128 * 3020 / 2880)


def test_a_share_that_does_not_fit_is_taken_in_passes_of_which_the_last_sends():
    # 96 on one rank in 3 passes of 32: the same 2880; 96 each on two ranks: 2880 + 1100
    small = planner(most_rank_batch=32)
    assert choice(small.estimate([1]), "divided").step_us == 2880
    assert choice(planner(global_batch=192, most_rank_batch=32).estimate([2]), "divided").step_us == 3980


def test_more_ranks_than_samples_cannot_divide_them():
    assert {one.batch_rule for one in planner(global_batch=3).estimate([4])} == {"best", "filled"}


def test_a_larger_noise_scale_wants_larger_batches():
    small, large = (
        shortest(planner(noise=NoiseScale(scale), most_rank_batch=4096).estimate([2])).global_batch
        for scale in (10.0, 1e5)
    )
    assert small < large


def test_the_interval_of_the_noise_scale_is_carried_along():
    found = choice(planner(noise=NoiseScale(304.0, 50.0, None)).estimate([2]), "filled")
    # at 50: (50 + 192)/(50 + 96)
    assert found.time_high == pytest.approx(242 / 146 * 96 / 192 * 3980 / 2880)
    # without an upper end more samples a step may cost nothing: half the steps
    assert found.time_low == pytest.approx(96 / 192 * 3980 / 2880)
    known = choice(planner().estimate([2]), "filled")
    assert known.time_low == known.time == known.time_high


def test_the_answer_in_words():
    words = describe_plan(planner().estimate([1, 2]), 2)
    assert words.startswith("2 ranks at global batch 128 finish first: 1.18 times as fast as one rank")
    assert "1 rank at 96 take at most twice as long" in words
    assert words.endswith("More than 2 ranks were not simulated, and may be better.")


def test_a_noise_scale_is_a_number_or_advice(tmp_path):
    path = tmp_path / "advice.json"
    path.write_text(json.dumps({"noise_scale": 512.5, "noise_scale_interval": [300.0, None], "batch": 64}))
    assert parse_noise_scale("1e4") == NoiseScale(10_000.0)
    assert parse_noise_scale(str(path)) == NoiseScale(512.5, 300.0, None)


@pytest.mark.parametrize(
    ("given", "content", "sentence"),
    [
        ("many", None, "neither a number nor advice"),
        ("-5", None, "contains -5.0"),
        ("nan", None, "contains nan"),
        ("a.json", "{}", "neither a number nor advice"),
        ("a.json", "[1]", "neither a number nor advice"),
        ("a.json", '{"noise_scale": null}', "neither a number nor advice"),
        ("a.json", '{"noise_scale": 5, "noise_scale_interval": [-1, 9]}', "contains -1"),
    ],
)
def test_what_is_no_noise_scale_is_one_sentence(given, content, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / given).write_text(content)
    with pytest.raises(Problem) as caught:
        parse_noise_scale(given)
    assert sentence in str(caught.value)
