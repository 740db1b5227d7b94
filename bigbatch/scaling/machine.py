"""Descriptions of machines: nodes, links, devices, jitter. Shipped in machines/, or read from a file.

Numbers that nobody published are marked as assumed, and can be set: --set machine.jitter.fraction=0.02.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean
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
    ValidationInfo,
    field_validator,
)

from bigbatch.errors import Problem, did_you_mean
from bigbatch.parts import explain_validation_error
from bigbatch.scaling.profile import Layer, LayerShape, Profile
from bigbatch.settings import assign

FASTEST_LINK_GB_S = 20_000.0  # ten times what any node had by 2026: a larger number is probably in another unit
_SHIPPED = Path(__file__).parent / "machines"
_MIXED_QUANTILES = tuple((place + 0.5) / 8 for place in (0, 4, 2, 6, 1, 5, 3, 7))  # van der Corput's order
SizesAndTimes = tuple[tuple[float, float], ...]  # bytes, microseconds


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Device(FrozenModel):
    """A roofline: a layer takes the time of its FLOPs or of its memory traffic, whichever is longer.

    `efficiency` is the fraction of both peaks that training reaches, `kernel_us` the least time of a layer's pass.
    """

    name: str
    peak_tflops: float = Field(gt=0, lt=1e6)
    memory_gb_s: float = Field(gt=0, lt=1e6)
    efficiency: float = Field(gt=0, le=1)
    kernel_us: float = Field(5.0, ge=0)

    def profile(self, model: str, shapes: list[LayerShape], rank_batch: int) -> Profile:
        """Backward takes twice the forward pass: a gradient for the inputs and one for the weights."""
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

    def _pass_us(self, shape: LayerShape, rank_batch: int) -> float:
        compute_us = rank_batch * shape.flops / (self.peak_tflops * 1e6)
        memory_us = (rank_batch * shape.activation_bytes + sum(shape.gradient_bytes)) / (self.memory_gb_s * 1e3)
        return max(compute_us, memory_us) / self.efficiency


class NcclLinks(FrozenModel):
    """GPUs under NCCL. Before version 2.4 (2019) it had rings only; since then it takes the faster of ring and tree."""

    within: Literal["nvlink", "pcie"]
    within_gb_s: float = Field(gt=0, le=FASTEST_LINK_GB_S)
    between_gb_s: float = Field(gt=0, le=FASTEST_LINK_GB_S)  # what a node sends and receives at once
    algorithms: Literal["ring", "tree", "auto"] = "auto"


class AllReduceTimes(FrozenModel):
    """Measured all-reduces: [bytes, microseconds] by increasing size, with linear interpolation between them.

    Where ranks compute and communicate on the same cores, `busy_points` are the times while the ranks compute, and
    `cpu_points` the CPU time that each all-reduce then takes from computing.
    """

    points: SizesAndTimes = Field(min_length=2)
    busy_points: SizesAndTimes = ()
    cpu_points: SizesAndTimes = ()

    @field_validator("points", "busy_points", "cpu_points")
    @classmethod
    def _check_increasing(cls, points: SizesAndTimes, info: ValidationInfo) -> SizesAndTimes:
        name, least_us = info.field_name, 0.0 if info.field_name == "cpu_points" else 1e-9
        if len(points) == 1:
            raise ValueError(f"{name} has one point: measure two sizes or leave it out")
        if points and (points[0][0] < 0 or points[0][1] < least_us):
            raise ValueError(f"{points[0]} of {name} must have a size and a positive time: measure it again")
        for (small, short), (large, long) in pairwise(points):
            if large <= small or long < short:
                raise ValueError(
                    f"{large:g} bytes in {long:g} µs after {small:g} bytes in {short:g} µs are not increasing: "
                    f"sort {name} by size, and measure again where more bytes take less time"
                )
        return points


class MeasuredLinks(AllReduceTimes):
    """Measured on `ranks` ranks. `horovod`: Horovod's own times without cycles and negotiation, where they differ."""

    ranks: int = Field(ge=2)
    horovod: AllReduceTimes | None = None


def _links_kind(given: Any) -> str:
    """Return the branch of the union, in brackets like pydantic's own branch names, which error messages omit."""
    measured = isinstance(given, MeasuredLinks) or (isinstance(given, dict) and "points" in given)
    return "[measured]" if measured else "[nccl]"


class Jitter(FrozenModel):
    """How much longer than the mean a rank takes in a step; all ranks wait for the slowest one.

    A rank takes 1 + ε times the mean, with ε drawn for each step, of mean 0 and standard deviation `fraction`. For an
    exponential ε the expected largest of N is fraction·(H_N − 1); quantiles are those of the largest of N, F(x)^N = q.
    """

    fraction: float = Field(0.0, ge=0, lt=1)
    kind: Literal["exponential", "normal"] = "exponential"

    def expected_slowdown(self, ranks: int) -> float:
        """The expected factor of the slowest of `ranks`; 1 for one rank."""
        if ranks == 1 or self.fraction == 0:
            return 1.0
        if self.kind == "exponential":
            return 1 + self.fraction * (harmonic_number(ranks) - 1)
        # the mean of the largest is the mean of its quantiles
        return fmean(self.slowdown_quantile(ranks, (index + 0.5) / 200) for index in range(200))

    def representative_slowdowns(self, ranks: int) -> tuple[float, ...]:
        """Factors of the slowest of `ranks` in several steps, with the spread and mixed order of real ones.

        Their mean is `expected_slowdown`.
        """
        expected = self.expected_slowdown(ranks)
        if expected == 1.0:
            return (1.0,)
        factors = [self.slowdown_quantile(ranks, quantile) for quantile in _MIXED_QUANTILES]
        return tuple(factor + expected - sum(factors) / len(factors) for factor in factors)

    def slowdown_quantile(self, ranks: int, quantile: float) -> float:
        """The factor that the slowest of `ranks` does not exceed in this fraction of the steps."""
        # q^(1/N) is too close to 1 for a float: keep the difference to 1
        missing = -math.expm1(math.log(quantile) / ranks)
        if self.kind == "exponential":
            return 1 + self.fraction * (-math.log(missing) - 1)
        return max(0.0, 1 - self.fraction * NormalDist().inv_cdf(missing))


def harmonic_number(n: int) -> float:
    """1 + 1/2 + ... + 1/n."""
    if n < 100:
        return sum(1 / k for k in range(1, n + 1))
    return math.log(n) + 0.5772156649015329 + 1 / (2 * n) - 1 / (12 * n * n)  # Euler's constant


class Machine(FrozenModel):
    """What a simulated step runs on."""

    name: str
    about: str = ""
    nodes: PositiveInt
    ranks_per_node: int = Field(ge=1, le=1024)
    links: Annotated[
        Annotated[NcclLinks, Tag("[nccl]")] | Annotated[MeasuredLinks, Tag("[measured]")], Discriminator(_links_kind)
    ]
    device: Device | None = None  # None: times of layers are measured or given
    control_us: PositiveFloat  # one small message between processes, as in Horovod's negotiation
    blocking: bool = False  # an all-reduce blocks the thread that starts it (gloo), or is queued on a stream (NCCL)
    # where ranks compute and communicate on the same cores, as with gloo:
    contention: float = Field(1.0, ge=1, lt=100)  # compute time of a rank beside the others over that of one alone
    cycle_cost_us: float = Field(0.0, ge=0)  # compute time lost to one of Horovod's cycles
    copy_gb_s: float | None = Field(None, gt=0)  # memory copies of a rank beside the others; None: see the device
    jitter: Jitter = Jitter()

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def layout(self, ranks: int) -> tuple[int, int]:
        """Return (nodes, ranks per node) for ranks that fill node by node."""
        return math.ceil(ranks / self.ranks_per_node), min(ranks, self.ranks_per_node)

    def without_core_sharing(self) -> Machine:
        """Return the same machine with separate cores for communication."""
        links, none = self.links, {"busy_points": (), "cpu_points": ()}
        if isinstance(links, MeasuredLinks):
            horovod = links.horovod and links.horovod.model_copy(update=none)
            links = links.model_copy(update={**none, "horovod": horovod})
        return self.model_copy(update={"links": links, "contention": 1.0, "cycle_cost_us": 0.0})

    def with_settings(self, settings: Mapping[str, object]) -> Machine:
        """Return a copy with settings like `{"links.algorithms": "ring", "jitter.fraction": 0.02}`."""
        fields = self.model_dump(mode="json")
        for path, value in settings.items():
            try:
                assign(fields, path, value)
            except Problem as problem:
                raise Problem(f"machine '{self.name}': {problem}") from problem
        return _validate(fields, f"machine '{self.name}'")


def _validate(fields: object, owner: str) -> Machine:
    if not isinstance(fields, dict):
        raise Problem(f"{owner} is {fields!r}, not a table: see 'bigbatch scale machine summit' for an example")
    try:
        return Machine.model_validate(fields)
    except ValidationError as error:
        raise Problem(explain_validation_error(error, owner, Machine)) from error


def machine_names() -> list[str]:
    """Return the names of the shipped machines."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def find_machine(name: str) -> Machine:
    """Return a shipped machine by its name, or one described in a .json or .toml file."""
    shipped = machine_names()
    path = _SHIPPED / f"{name}.toml" if name in shipped else Path(name)
    if path.suffix not in (".json", ".toml"):
        raise Problem(
            f"no machine called '{name}'{did_you_mean(name, shipped)} There are {', '.join(shipped)}, "
            "or give a description that ends in .json or .toml"
        )
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise Problem(f"{path} cannot be read as a machine ({error}): check it") from error
    return _validate(fields, f"machine {path.name}")
