"""Filter a dataset, in rounds if wanted; compare results by training; tune a filter; audit filters on known noise."""

from __future__ import annotations

from bigbatch.curation.audit import AuditRequest, AuditRow, audit_filters, summarise_audit
from bigbatch.curation.comparison import ComparisonRequest, ComparisonRow, compare_results, summarise_trainings
from bigbatch.curation.rounds import FilterRequest, check_output_file, filter_dataset
from bigbatch.curation.tuning import TuningRequest, tune_filter

__all__ = [
    "AuditRequest",
    "AuditRow",
    "ComparisonRequest",
    "ComparisonRow",
    "FilterRequest",
    "TuningRequest",
    "audit_filters",
    "check_output_file",
    "compare_results",
    "filter_dataset",
    "summarise_audit",
    "summarise_trainings",
    "tune_filter",
]
