"""A machine: nodes, links, devices, and how unevenly its ranks run. Shipped under a name, or read from a file.

Numbers that nobody published are marked as assumed where they are written, and can be set:
--set machine.jitter.fraction=0.02.
"""

from __future__ import annotations

import json
import math
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationError,
    model_validator,
)

from bigbatch.errors import Problem, did_you_mean
from bigbatch.parts import explain
from bigbatch.scaling.networks import Shape
from bigbatch.scaling.profile import Layer, Profile

FASTEST_LINK_GB_S = 20_000.0  # ten times what any node has had by 2026: more is a slip of the unit


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Device(_Frozen):
    """What computes. A layer takes as long as its FLOPs or its traffic need, whichever is longer (a roofline).

    `efficiency` is the share of both peaks that training reaches, `kernel_us` the least that a layer's pass takes.
    """

    name: str
    peak_tflops: float = Field(gt=0, lt=1e6)
    memory_gb_s: float = Field(gt=0, lt=1e6)
    efficiency: float = Field(gt=0, le=1)
    kernel_us: float = Field(5.0, ge=0)

    def profile(self, model: str, shapes: list[Shape], rank_batch: int) -> Profile:
        """Backward is twice the forward pass: a gradient for the inputs and one for the weights."""
        layers = tuple(
            Layer(shape.name, max(2 * self._pass_us(shape, rank_batch), self.kernel_us), shape.gradient_bytes)
            for shape in reversed(shapes)
        )
        return Profile(
            model=model,
            rank_batch=rank_batch,
            forward_us=sum(max(self._pass_us(shape, rank_batch), self.kernel_us) for shape in shapes),
            layers=layers,
            source=f"from FLOPs and bytes at {self.efficiency:.0%} of a {self.name}'s peaks",
        )

    def _pass_us(self, shape: Shape, rank_batch: int) -> float:
        compute_us = rank_batch * shape.flops / (self.peak_tflops * 1e6)
        memory_us = (rank_batch * shape.activation_bytes + sum(shape.gradient_bytes)) / (self.memory_gb_s * 1e3)
        return max(compute_us, memory_us) / self.efficiency


class NcclLinks(_Frozen):
    """GPUs under NCCL. Rings alone are NCCL before 2.4 (2019); from then on it takes the faster of ring and tree."""

    within: Literal["nvlink", "pcie"]
    within_gb_s: float = Field(gt=0, le=FASTEST_LINK_GB_S)
    between_gb_s: float = Field(gt=0, le=FASTEST_LINK_GB_S)  # what a node sends and receives at once
    algorithms: Literal["ring", "tree", "auto"] = "auto"


class AllReduceTimes(_Frozen):
    """All-reduces that were timed: [bytes, microseconds], from the smallest on; lines between them.

    Where ranks compute and sum on the same cores: `busy_points` are the same while the ranks compute, and `cpu_points`
    what each then takes from the computing.
    """

    points: tuple[tuple[float, float], ...] = Field(min_length=2)
    busy_points: tuple[tuple[float, float], ...] = ()
    cpu_points: tuple[tuple[float, float], ...] = ()

    @model_validator(mode="after")
    def _rising(self) -> AllReduceTimes:
        for name in ("points", "busy_points", "cpu_points"):
            _check_rising(name, getattr(self, name))
            if len(getattr(self, name)) == 1:
                raise ValueError(f"one of {name} makes no line: measure two sizes or leave them out")
        return self


class MeasuredLinks(AllReduceTimes):
    """Timed on `ranks` ranks. `horovod`: its own, cycles and questions not counted, where they differ from torch's."""

    ranks: int = Field(ge=2)
    horovod: AllReduceTimes | None = None


def _check_rising(name: str, points: tuple[tuple[float, float], ...]) -> None:
    least_us = 0.0 if name == "cpu_points" else 1e-9  # CPU time may be none
    if points and (points[0][0] < 0 or points[0][1] < least_us):
        raise ValueError(f"a message takes time and has a size: {points[0]} of {name} cannot be, measure it again")
    for (small, short), (large, long) in pairwise(points):
        if large <= small or long < short:
            raise ValueError(
                f"{large:g} bytes in {long:g} µs after {small:g} bytes in {short:g} µs cannot be: "
                f"sort {name} by size, and measure again where more takes less"
            )


def _kind_of_links(given: Any) -> str:
    """By what is in it. In brackets, as pydantic's own names of branches are, which `explain` leaves out."""
    measured = isinstance(given, MeasuredLinks) or (isinstance(given, dict) and "points" in given)
    return "[measured]" if measured else "[nccl]"


class Jitter(_Frozen):
    """How much longer a rank takes than the mean, anew in each step: `fraction` is the standard deviation."""

    fraction: float = Field(0.0, ge=0, lt=1)
    kind: Literal["exponential", "normal"] = "exponential"


class Machine(_Frozen):
    """What a simulated step runs on."""

    name: str
    about: str = ""
    nodes: PositiveInt
    ranks_per_node: int = Field(ge=1, le=1024)
    links: Annotated[
        Annotated[NcclLinks, Tag("[nccl]")] | Annotated[MeasuredLinks, Tag("[measured]")], Discriminator(_kind_of_links)
    ]
    device: Device | None = None  # None: layers have to be timed or given
    control_us: PositiveFloat  # one small message between processes: Horovod's negotiation goes over these
    blocking: bool = False  # an all-reduce keeps the thread that starts it (gloo), or is queued on a stream (NCCL)
    # where ranks compute and sum on the same cores, as with gloo:
    contention: float = Field(1.0, ge=1, lt=100)  # how many times longer a rank computes beside the others than alone
    cycle_cost_us: float = Field(0.0, ge=0)  # what computing beside it loses to one of Horovod's cycles
    copy_gb_s: float | None = Field(None, gt=0)  # what a rank copies in memory beside the others; None: see the device
    jitter: Jitter = Jitter()

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def layout(self, ranks: int) -> tuple[int, int]:
        """(nodes, ranks in each), filled node by node."""
        return math.ceil(ranks / self.ranks_per_node), min(ranks, self.ranks_per_node)

    def unshared(self) -> Machine:
        """The same where ranks have cores of their own to send with."""
        links, none = self.links, {"busy_points": (), "cpu_points": ()}
        if isinstance(links, MeasuredLinks):
            horovod = links.horovod and links.horovod.model_copy(update=none)
            links = links.model_copy(update={**none, "horovod": horovod})
        return self.model_copy(update={"links": links, "contention": 1.0, "cycle_cost_us": 0.0})

    def with_settings(self, settings: dict[str, Any]) -> Machine:
        """A copy with `{"links.algorithms": "ring", "jitter.fraction": 0.02}` and the like applied."""
        fields = self.model_dump(mode="json")
        for path, value in settings.items():
            *parents, last = path.split(".")
            inner = fields
            for parent in parents:
                if inner.get(parent) is None:
                    inner[parent] = {}
                inner = inner[parent]
                if not isinstance(inner, dict):
                    raise Problem(f"machine.{path} is nothing that machine '{self.name}' has: see its description")
            inner[last] = value
        return _valid(fields, f"machine '{self.name}'")


def _valid(fields: Any, owner: str) -> Machine:
    if not isinstance(fields, dict):
        raise Problem(f"{owner} is {fields!r}, no table of names and numbers: see 'bigbatch scale machine summit'")
    try:
        return Machine.model_validate(fields)
    except ValidationError as error:
        raise Problem(explain(error, owner, Machine)) from error


def find(name: str) -> Machine:
    """A shipped machine by its name, or one described in a .json or .toml file."""
    if name in SHIPPED:
        return SHIPPED[name]
    path = Path(name)
    if path.suffix not in (".json", ".toml"):
        raise Problem(
            f"no machine called '{name}'{did_you_mean(name, SHIPPED)} There are {', '.join(SHIPPED)}, "
            "or give a description that ends in .json or .toml"
        )
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read as a machine ({error}): check it") from error
    return _valid(fields, f"machine {path.name}")


# efficiency: what brings ResNet-50 in float32 to 367 images/s on a V100 (NVIDIA DeepLearningExamples, PyTorch
# ResNet-50 v1.5, DGX-1 16 GB, container 21.03) and to 219 on a P100 (TensorFlow's benchmarks page, May 2017)
V100 = Device(name="V100", peak_tflops=15.7, memory_gb_s=900.0, efficiency=0.687)
P100 = Device(name="P100", peak_tflops=10.6, memory_gb_s=732.0, efficiency=0.590)

SUMMIT = Machine(
    name="summit",
    about="Summit (ORNL): 4608 nodes of 6 V100; 23 GB/s into and out of a node; control messages of 2 µs assumed",
    nodes=4608,
    ranks_per_node=6,
    links=NcclLinks(within="nvlink", within_gb_s=50.0, between_gb_s=23.0),
    device=V100,
    control_us=2.0,
    jitter=Jitter(fraction=0.01757),  # fitted on one published point: see published.py
)
PASCAL = Machine(
    name="pascal",
    about="Horovod's benchmark (2017): 128 servers of 4 P100, PCIe, RoCE 25 Gbit/s; PCIe 12 GB/s and control messages "
    "of 5 µs assumed; NCCL had rings only",
    nodes=128,
    ranks_per_node=4,
    links=NcclLinks(within="pcie", within_gb_s=12.0, between_gb_s=3.125, algorithms="ring"),
    device=P100,
    control_us=5.0,
    jitter=SUMMIT.jitter,
)
DGX1 = Machine(
    name="dgx1",
    about="One DGX-1 with 8 V100; NVLink 120 GB/s over all rings assumed",
    nodes=1,
    ranks_per_node=8,
    links=NcclLinks(within="nvlink", within_gb_s=120.0, between_gb_s=50.0),
    device=V100,
    control_us=2.0,
    jitter=SUMMIT.jitter,
)
HERE = Machine(
    name="here",
    about="gloo over loopback on a 2-core machine, torch 2.13, minima: 268 µs, 1.09 GB/s to 16 MB, 0.78 GB/s at 64 MB",
    nodes=1,
    ranks_per_node=2,
    links=MeasuredLinks(ranks=2, points=((0, 268.0), (16e6, 268.0 + 16e6 / 1.09e3), (64e6, 268.0 + 64e6 / 0.78e3))),
    control_us=268.0,
    blocking=True,
)
SHIPPED = {machine.name: machine for machine in (SUMMIT, PASCAL, DGX1, HERE)}
