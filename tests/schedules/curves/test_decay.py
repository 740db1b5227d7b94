"""Decays, by hand."""

from __future__ import annotations

from math import sqrt

import pytest

from bigbatch.errors import Problem
from bigbatch.schedules import constant, cosine, exponential, multi_step, polynomial, warmup_stable_decay


def test_exponential_is_flat_for_seven_epochs_then_halves_each_epoch():
    # LEGW's language model, 13 epochs: the eighth epoch is at a half, the thirteenth at 1/64
    decay = exponential(7)
    assert [decay.factor(epoch + 0.5, 13) for epoch in range(13)] == [1] * 7 + [1 / 2**n for n in range(1, 7)]
    assert [decay.factor(epoch, 13) for epoch in (6.999, 7, 7.999, 8)] == [1, 0.5, 0.5, 0.25]


def test_multi_step_falls_at_the_epoch_itself():
    decay = multi_step(2, 4, multiply_by=0.5)
    assert [decay.factor(epochs, 6) for epochs in (0, 1.99, 2, 3.99, 4, 5.9)] == [1, 1, 0.5, 0.5, 0.25, 0.25]


def test_polynomial_has_power_two_unless_told():
    assert polynomial().factor(3, 4) == 1 / 16
    assert polynomial(1).factor(3, 4) == 1 / 4
    assert polynomial(2).factor(5, 4) == 0  # past the end, not up again on the other side


def test_cosine_is_half_way_in_the_middle():
    decay = cosine()
    assert [decay.factor(epochs, 8) for epochs in (0, 2, 4, 8)] == pytest.approx([1, (1 + sqrt(0.5)) / 2, 0.5, 0])
    assert decay.factor(6, 8, warmup_epochs=4) == pytest.approx(0.5)
    assert cosine(over="training").factor(4, 8, warmup_epochs=4) == pytest.approx(0.5)


def test_warmup_stable_decay_falls_at_the_end():
    # the last quarter of 8 epochs: flat until 6, half way at 7; 1 − √½ there in the other shape
    decay, root = warmup_stable_decay(0.25), warmup_stable_decay(0.25, shape="sqrt")
    assert [decay.factor(epochs, 8, 1) for epochs in (1, 5.9, 6, 7, 8)] == [1, 1, 1, 0.5, 0]
    assert root.factor(7, 8, 1) == pytest.approx(1 - sqrt(0.5))
    assert decay.factor(7, 8, 7) == 1  # a longer warm-up shortens the fall
    assert decay.factor(8, 8, 8) == 0


@pytest.mark.parametrize(
    "make", [polynomial, cosine, warmup_stable_decay, exponential, lambda **o: multi_step(1, 2, **o)]
)
def test_every_decay_can_end_at_a_floor(make):
    plain, floored = make(), make(floor=0.25)
    assert [floored.factor(0, 20), plain.factor(0, 20)] == [1, 1]
    assert floored.factor(20, 20) == 0.25 > plain.factor(20, 20)
    factors = [floored.factor(epochs, 20) for epochs in range(21)]
    assert factors == sorted(factors, reverse=True)
    assert "floor" not in plain.model_dump()  # files of runs without one stay as they are
    assert floored.model_dump()["floor"] == 0.25


def test_cosine_with_a_floor_is_half_way_between_peak_and_floor():
    assert cosine(floor=0.2).factor(4, 8) == pytest.approx(0.6)


def test_constant_stays():
    assert constant().factor(7, 8) == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: polynomial(-1), "polynomial: power should be greater than 0; got -1"),
        (lambda: polynomial(float("nan")), "power should be a finite number; got nan"),
        (lambda: exponential(-2), "exponential: flat_epochs should be .* 0; got -2"),
        (lambda: multi_step(30, 20), r"multi_step: at_epochs should increase, .*; got \(30, 20\)"),
        (lambda: multi_step(30, multiply_by=float("inf")), "multiply_by should .*; got inf"),
        (lambda: multi_step(-30), "at_epochs.0 should .*; got -30"),
    ],
)
def test_a_bad_number_is_one_sentence_that_names_it(make, named):
    with pytest.raises(Problem, match=named) as problem:
        make()
    assert "\n" not in str(problem.value)
