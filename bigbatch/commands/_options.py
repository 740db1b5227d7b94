"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="FIELD=VALUE ... for fields of the run, like optimizer.lr=3.2; see show"),
]
Ranks = Annotated[
    int,
    Parameter(
        help="processes on this machine, started with torchrun or horovodrun; the gradient of a global batch is equal "
        "in exact arithmetic, and in float32 up to rounding, which training amplifies; "
        "--set reduction=exact makes it equal in all bits"
    ),
]
RunsDir = Annotated[Path, Parameter(help="where run folders are made")]
DataDir = Annotated[
    Path | None, Parameter(help="where datasets are looked up; else $BIGBATCH_DATA, then ~/.cache/bigbatch/datasets")
]
CheckpointMinutes = Annotated[float, Parameter(help="between checkpoints, besides the one at each epoch's end")]
Targets = Annotated[
    list[str] | None,
    Parameter(
        name="--target",
        negative="",
        help="METRIC=VALUE, like test_accuracy=0.98: record the samples, steps and seconds until it is reached",
    ),
]
Track = Annotated[
    list[str] | None,
    Parameter(negative="", help="mirror the metrics elsewhere too; see 'bigbatch list trackers'"),
]
Quiet = Annotated[bool, Parameter(negative="", help="print nothing but errors and the result")]
