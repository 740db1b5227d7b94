"""A process of its own, or a rank under torchrun, that filters: filter_ranks.py DATASET OUT [SETTING ...]"""

from __future__ import annotations

import sys
from pathlib import Path

from bigbatch.curation import FilterRequest, filter_dataset

if __name__ == "__main__":
    dataset, out, *settings = sys.argv[1:]
    filter_dataset(FilterRequest(dataset, out=Path(out), network="filter_parts:Net", settings=settings))
