"""Numbers and durations as text."""

from __future__ import annotations

import pytest

from bigbatch.output.formatting import (
    differing_fields,
    flatten_fields,
    format_csv,
    format_duration,
    format_number,
    format_percent,
    format_range,
)


@pytest.mark.parametrize(
    ("value", "text"), [(1_234_567.0, "1,234,567"), (73.32, "73.3"), (0.01234, "0.0123"), (None, "∞")]
)
def test_format_number(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.00123, "1.23 ms"), (4.0, "4 s"), (180.0, "3 min"), (9000.0, "2.5 h"), (None, "–")]
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


def test_format_range_and_percent():
    assert format_range(52.0, 98.4) == "52 to 98.4"
    assert format_range(52.0, None) == "at least 52"
    assert format_percent(0.254) == "25 %"


def test_format_csv_takes_the_columns_of_all_rows():
    assert format_csv([{"a": 1, "b": None}, {"a": 0.5, "c": "x, y"}]) == 'a,b,c\n1,,\n0.5,,"x, y"\n'


def test_what_differs_counts_what_is_missing():
    assert flatten_fields({"a": {"b": 1, "c": {"d": [2]}}, "e": None}) == {"a.b": 1, "a.c.d": [2], "e": None}
    assert differing_fields([{"a": 1, "b": {"c": None}}, {"a": 1, "b": {}}, {"a": 1, "b": {}}]) == ["b.c"]
