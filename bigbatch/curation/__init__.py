"""Filter a dataset, in rounds if wanted; compare results by training; tune the options of a filter."""

from __future__ import annotations

from bigbatch.curation.comparison import ComparisonRequest, ComparisonRow, compare_results
from bigbatch.curation.rounds import FilterRequest, check_output_file, filter_dataset
from bigbatch.curation.tuning import TuningRequest, tune_filter

__all__ = [
    "ComparisonRequest",
    "ComparisonRow",
    "FilterRequest",
    "TuningRequest",
    "check_output_file",
    "compare_results",
    "filter_dataset",
    "tune_filter",
]
