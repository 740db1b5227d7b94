"""Intervals of communication."""

from __future__ import annotations

from bigbatch.scaling.phases import covered_time, merge_intervals


def test_overlapped_communication_is_counted_once_and_until_the_last_gradient():
    assert merge_intervals([(8, 12), (2, 5), (1, 3)]) == [(1, 5), (8, 12)]
    assert covered_time([(1, 3), (2, 5), (8, 12), (11, 13)], until=10) == 6  # 1 to 5 and 8 to 10
