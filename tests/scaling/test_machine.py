"""Descriptions of machines: shipped, read from files, and refused where their numbers cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hand import SUMMIT

from bigbatch.errors import Problem
from bigbatch.scaling.machine import AllReduceTimes, find_machine, machine_names

TOML = """
name = "lab"
nodes = 4
ranks_per_node = 8
control_us = 3.0
[links]
within = "nvlink"
within_gb_s = 100
between_gb_s = 12.5
[jitter]
fraction = 0.02
kind = "normal"
"""


@pytest.mark.parametrize("name", machine_names())
def test_a_shipped_machine_survives_its_own_description(name, tmp_path):
    path = tmp_path / "m.json"
    path.write_text(find_machine(name).model_dump_json())
    assert find_machine(str(path)) == find_machine(name)


def test_a_machine_of_ones_own(tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text(TOML)
    machine = find_machine(str(path))
    assert machine.ranks == 32
    assert machine.layout(20) == (3, 8)
    assert machine.layout(5) == (1, 5)


def test_settings_change_a_copy():
    changed = SUMMIT.with_settings({"links.between_gb_s": 46, "jitter.fraction": 0.0})
    assert (changed.links.between_gb_s, changed.jitter.fraction) == (46, 0)
    assert SUMMIT.links.between_gb_s == 23


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"links.between_gb_s": 0}, "links.between_gb_s should be greater than 0; got 0"),
        ({"links.between_gb_s": -23}, "links.between_gb_s should be greater than 0; got -23"),
        ({"links.within_gb_s": 1e9}, "links.within_gb_s should be less than or equal to 20000"),
        ({"links.between_gb_s": float("nan")}, "finite number"),
        ({"links.algorithms": "star"}, "'ring', 'tree' or 'auto'; got 'star'"),
        ({"ranks_per_node": 0}, "ranks_per_node should be greater than or equal to 1; got 0"),
        ({"nodes": -1}, "nodes should be greater than 0"),
        ({"control_us": 0}, "control_us should be greater than 0"),
        ({"jitter.fraction": 1.5}, "jitter.fraction should be less than 1"),
        ({"device.efficiency": 1.2}, "device.efficiency should be less than or equal to 1"),
        ({"device.peak_tflops": "fast"}, "device.peak_tflops should be a valid number"),
        ({"colour": "red"}, "has no option 'colour'"),
        ({"jitter.fractoin": 0.1}, "has no option 'jitter.fractoin'"),
        ({"devise.peak_tflops": 1}, "has no option 'devise'; did you mean 'device'?"),
        ({"nodes.many": 1}, "machine 'summit': 'nodes.many=1': 'nodes' is 4608 and has no fields"),
    ],
)
def test_impossible_numbers_are_one_sentence(settings: dict[str, Any], sentence):
    with pytest.raises(Problem) as caught:
        SUMMIT.with_settings(settings)
    assert sentence in str(caught.value)
    assert "summit" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        ([[0, 100], [1000, 50]], "1000 bytes in 50 µs after 0 bytes in 100 µs are not increasing"),
        ([[1000, 100], [1000, 200]], "sort points by size"),
        ([[0, 0], [1000, 50]], "must have a size and a positive time"),
        ([[0, 100]], "at least 2 items"),
    ],
)
def test_measured_points_have_to_rise(points, sentence, tmp_path):
    description = json.loads(find_machine("here").model_dump_json())
    description["links"]["points"] = points
    path = tmp_path / "m.json"
    path.write_text(json.dumps(description))
    with pytest.raises(Problem, match=r"m\.json") as caught:
        find_machine(str(path))
    assert sentence in str(caught.value)


def test_a_long_table_is_not_repeated_beside_what_is_wrong_with_it(tmp_path):
    description = json.loads(find_machine("here").model_dump_json())
    description["links"]["points"] = [[size, 100.0 - size] for size in range(50)]
    path = tmp_path / "m.json"
    path.write_text(json.dumps(description))
    with pytest.raises(Problem, match="1 bytes in 99 µs after 0 bytes in 100 µs are not increasing") as caught:
        find_machine(str(path))
    assert len(str(caught.value)) < 300


def test_an_all_reduce_may_take_no_cpu_time_but_none_of_the_other_times_is_nothing():
    points = ((0, 100.0), (1000, 200.0))
    assert AllReduceTimes(points=points, cpu_points=((0, 0.0), (1000, 0.0))).cpu_points[0] == (0, 0)
    with pytest.raises(ValueError, match="must have a size and a positive time"):
        AllReduceTimes(points=points, busy_points=((0, 0.0), (1000, 1.0)))
    with pytest.raises(ValueError, match="sort cpu_points by size"):
        AllReduceTimes(points=points, cpu_points=((0, 2.0), (1000, 1.0)))
    with pytest.raises(ValueError, match="cpu_points has one point"):
        AllReduceTimes(points=points, cpu_points=((0, 2.0),))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("sumit", None, "no machine called 'sumit'; did you mean 'summit'?"),
        ("missing.json", None, "missing.json cannot be read as a machine"),
        ("broken.json", "{", "broken.json cannot be read as a machine"),
        ("broken.toml", "a = ", "broken.toml cannot be read as a machine"),
        ("list.json", "[]", "machine list.json is [], not a table"),
        ("empty.toml", "", "machine empty.toml needs 'name'"),
    ],
)
def test_what_is_no_machine_is_one_sentence(name, text, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(Problem) as caught:
        find_machine(name)
    assert sentence in str(caught.value)
