"""The options of `bigbatch scale`. Each command takes one of these values, and so do the functions behind it."""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from bigbatch.errors import Notice

if TYPE_CHECKING:
    from bigbatch.scaling.machine import Machine
    from bigbatch.scaling.workload import ProfileAtBatch, Workload

AT_LEAST_1 = Number(gte=1)
MOST_RANKS = MOST_RANK_BATCH = 10_000_000
MOST_TRACED_STEPS = 100  # a trace records everything in a step
Count = Annotated[int, Parameter(validator=AT_LEAST_1)]
RankCount = Annotated[int, Parameter(validator=Number(gte=1, lte=MOST_RANKS))]
RankBatch = Annotated[
    int, Parameter(name="--batch", validator=Number(gte=1, lte=MOST_RANK_BATCH), help="samples per rank in one pass")
]
Engines = Annotated[
    tuple[str, ...],
    Parameter(
        name=("--engines", "--engine"),
        negative="",
        show_default=False,
        help="like ddp,horovod; default: all that can be used",
    ),
]
Sample = Annotated[str, Parameter(help="shape of a sample, like 3,32,32; one number is a text of that many words")]
Classes = Annotated[int, Parameter(help="number of classes, or words in the vocabulary")]


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """A model and its samples."""

    model: str
    _: KW_ONLY
    rank_batch: RankBatch = 8
    sample: Sample = "3,32,32"
    classes: Classes = 10
    settings: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative="",
            show_default=False,
            help="like model.depth=32, horovod.cycle_ms=5, machine.links.algorithms=ring",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions(ModelOptions):
    """The options of `bigbatch scale measure`."""

    engines: Engines = ()
    ranks: Annotated[str, Parameter(help="numbers of ranks, like 1,2")] = "1,2"
    rounds: Annotated[Count, Parameter(help="how often each configuration is started")] = 5
    steps: Annotated[Count, Parameter(help="timed steps of each start")] = 10
    hosts: Annotated[
        str, Parameter(help="other machines, like node1,node2, through ssh or srun; netns:NAME is a local namespace")
    ] = ""
    sweep: Annotated[
        bool, Parameter(negative="", help="also vary DDP's bucket cap, Horovod's cycle time and fusion buffer")
    ] = False
    out: Annotated[
        Path | None, Parameter(help="folder for a page, JSON, CSV, and machine.json for 'scale simulate --machine'")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TraceOptions(ModelOptions):
    """The options of `bigbatch scale trace`."""

    engines: Engines = ()
    ranks: Annotated[Count, Parameter(help="processes on this machine")] = 2
    steps: Annotated[
        int, Parameter(validator=Number(gte=1, lte=MOST_TRACED_STEPS), help="traced steps, after some warm-up steps")
    ] = 3
    out: Annotated[Path, Parameter(help="folder for the trace, figures and a page")]


@dataclass(frozen=True, kw_only=True)
class SimulatedRanksOptions(ModelOptions):
    """The options that `simulate` and `plan` share."""

    rank_batch: RankBatch = 64
    sample: Sample = "3,224,224"
    classes: Classes = 1000
    to: Annotated[RankCount, Parameter(help="largest number of ranks")] = 6144
    points: Annotated[Count, Parameter(help="how many numbers of ranks up to there")] = 16
    machine: Annotated[
        str, Parameter(help="summit, pascal, dgx1, here, or a .json or .toml description; see 'scale machine'")
    ] = "summit"
    samples_per_second: Annotated[
        float | None, Parameter(validator=Number(gt=0, lt=math.inf), help="measured throughput of one rank alone")
    ] = None
    out: Annotated[Path | None, Parameter(help="folder for a page, figures, JSON and CSV")] = None

    def build(self, workload: Workload, machine: dict[str, Any]) -> tuple[Machine, list[int], ProfileAtBatch]:
        """Return the machine with these settings, the numbers of ranks, and the profile by the batch per rank."""
        from bigbatch.scaling.machine import find_machine
        from bigbatch.scaling.simulation import rank_counts

        found = find_machine(self.machine).with_settings(machine)
        if self.to > found.ranks:
            warnings.warn(
                Notice(
                    f"machine '{found.name}' has {found.ranks:,} ranks: results for more are those of a larger "
                    "machine with the same nodes and links"
                ),
                stacklevel=2,
            )
        ranks = rank_counts(self.to, self.points, found.ranks_per_node)
        return found, ranks, workload.profiles(found, self.rank_batch, self.samples_per_second)


@dataclass(frozen=True, kw_only=True)
class SimulationOptions(SimulatedRanksOptions):
    """The options of `bigbatch scale simulate`."""

    engines: Engines = ("ddp", "horovod")
    picture: Annotated[
        RankCount | None, Parameter(help="number of ranks whose step is drawn; default: the largest")
    ] = None


@dataclass(frozen=True, kw_only=True)
class PlanOptions(SimulatedRanksOptions):
    """The options of `bigbatch scale plan`."""

    engine: Annotated[str, Parameter(help="ddp or horovod")] = "ddp"
    global_batch: Annotated[Count, Parameter(help="the present global batch")]
    noise_scale: Annotated[str, Parameter(help="a number of samples, or the JSON that 'bigbatch advise' wrote")]
