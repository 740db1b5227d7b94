"""What others measured, against what the simulator says: fitted on one point, tested on the others.

The one fitted number is the jitter of Summit; every machine below uses it. Where a publication does not say what a
simulation needs (layers, times, batch a rank), the point is tested only against the bound that is left when all
communication is hidden: the waiting for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bigbatch.scaling import networks, simulation
from bigbatch.scaling.jitter import expected_slowdown, slowdown_quantile
from bigbatch.scaling.machine import DGX1, PASCAL, SUMMIT, Jitter, Machine
from bigbatch.scaling.profile import Profile

_TENSORFLOW = "TensorFlow benchmarks page, DGX-1 with P100, May 2017"
_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch ResNet-50 v1.5, DGX-1 16 GB"
_HOROVOD_512 = "Horovod's documentation, 128 servers of 4 Pascal GPUs, RoCE 25 Gbit/s, batch 64"
_HOROVOD_128 = "Horovod's README of 2017, 32 servers of 4 Pascal GPUs, RoCE 25 Gbit/s, batch 64"
AGREES, NEAR = 0.01, 0.05  # of efficiency; published ones are rounded to about a point
_RINGS = {"links.algorithms": "ring"}
_TREES = {"links.algorithms": "auto"}
_CACHED = {"cache_capacity": 1024}
_UNCACHED = {"cache_capacity": 0}


@dataclass(frozen=True)
class Published:
    """An efficiency that somebody measured, and what is known of how."""

    what: str
    ranks: int
    efficiency: float
    source: str
    machine: Machine
    model: str | None = None  # None: layers and times are not known
    depth: int | None = None
    rank_batch: int = 64
    samples_per_second: float = 0.0  # of one rank
    speed_source: str = ""
    engine: str = "horovod"
    options: tuple[tuple[str, Any], ...] = ()
    assumed: str = ""
    doubt: str = ""  # what may be behind an error


_RINGS_OF_TODAY = (
    "The ring's latencies are those of NCCL's tuner of today, and each of Horovod's many all-reduces pays them; the "
    "speed of one rank is interpolated."
)
# Horovod in 2017 had no response cache, cycles of 5 ms and buffers of 64 MiB
_OLD = (("cycle_ms", 5.0), ("fusion_mb", 64.0), ("cache_capacity", 0))


def _pascal(
    what: str, ranks: int, efficiency: float, model: str, samples_per_second: float, depth: int | None = None
) -> Published:
    speed = "interpolated over FLOPs between ResNet-50 and -152 of the " if depth == 101 else ""
    return Published(
        what=f"{what}, Pascal",
        ranks=ranks,
        efficiency=efficiency,
        source=_HOROVOD_512 if ranks == 512 else _HOROVOD_128,
        machine=PASCAL,
        model=model,
        depth=depth,
        samples_per_second=samples_per_second,
        speed_source=f"{speed}{_TENSORFLOW}",
        options=_OLD,
        doubt=_RINGS_OF_TODAY if depth == 101 else "",
        assumed="P100 over PCIe; float32; rings only, no response cache, 5 ms cycles, 64 MiB buffers (2017)",
    )


_HIDDEN = "layers and times are not in the abstract: all communication hidden, only the slowest rank waited for"
_LONG = (
    "Jitter in proportion to the step cannot hold for steps of every length: slowdowns that have a length of their own "
    "weigh less in a long step."
)

FITTED = Published(
    what="ResNet-50, Summit",
    ranks=6144,
    efficiency=0.87,
    source="Yin et al. 2019, abstract",
    machine=SUMMIT,
    model="resnet",
    depth=50,
    samples_per_second=367.0,
    speed_source=_NVIDIA,
    assumed="float32, batch 64 a rank, Horovod with response cache, trees; the abstract names none of these",
)
TESTED = (
    Published(
        what="ResNet-50, DGX-1",
        ranks=8,
        efficiency=7.76 / 8,
        source=f"{_NVIDIA} (2855 over 367 images/s)",
        machine=DGX1,
        model="resnet",
        depth=50,
        rank_batch=128,
        samples_per_second=367.0,
        speed_source=_NVIDIA,
        engine="ddp",
        assumed="batch 128 a rank; NVLink 120 GB/s; the measured time includes reading images",
    ),
    _pascal("ResNet-101", 128, 0.90, "resnet", 129.0, 101),
    _pascal("Inception-V3", 128, 0.90, "inception3", 142.0),
    _pascal("VGG-16", 128, 0.79, "vgg16", 154.0),
    _pascal("ResNet-101", 512, 0.90, "resnet", 129.0, 101),
    _pascal("Inception-V3", 512, 0.90, "inception3", 142.0),
    _pascal("VGG-16", 512, 0.68, "vgg16", 154.0),
    Published("Tiramisu, Piz Daint", 5300, 0.790, "Kurth et al. 2018, abstract", SUMMIT, assumed=_HIDDEN, doubt=_LONG),
    Published("DeepLabv3+, Summit", 27360, 0.907, "Kurth et al. 2018, abstract", SUMMIT, assumed=_HIDDEN, doubt=_LONG),
    Published("FCN, Summit", 27600, 0.93, "Laanait et al. 2019, abstract", SUMMIT, assumed=_HIDDEN, doubt=_LONG),
)


@dataclass(frozen=True)
class PublishedComparison:
    """A published point beside the simulated one. `least` and `most`: over library versions (rings, trees, cache)."""

    published: Published
    fitted: bool
    efficiency: float
    low: float
    high: float
    least: float
    most: float
    bends: str

    @property
    def error(self) -> float:
        """Simulated minus published, in efficiency."""
        return self.efficiency - self.published.efficiency

    @property
    def verdict(self) -> str:
        if self.fitted:
            return "fitted"
        if self.published.model is None and self.error > AGREES:
            return "under the bound"
        if abs(self.error) <= AGREES:
            return "within 1 point"
        return "within 5 points" if abs(self.error) <= NEAR else "fails"


def check(
    shapes_of: Callable[[str, int | None], list[networks.Shape]], jitter: Jitter | None = None
) -> list[PublishedComparison]:
    """Every point, with Summit's jitter or another one. `shapes_of(model, depth)` gives a network's layers."""
    found = []
    for point in (FITTED, *TESTED):
        machine = point.machine if jitter is None else point.machine.model_copy(update={"jitter": jitter})
        if point.model is None:
            found.append(_bound(point, machine))
        else:
            found.append(_checked(point, machine, profile_of(point, shapes_of(point.model, point.depth))))
    return found


def profile_of(point: Published, shapes: list[networks.Shape]) -> Profile:
    assert point.machine.device is not None
    profile = point.machine.device.profile(point.what, shapes, point.rank_batch)
    return profile.at_speed(point.samples_per_second, point.speed_source)


def fit(shapes: list[networks.Shape], kind: str = "exponential") -> float:
    """The jitter that makes the simulator say what was published for the fitted point; bisection.

    0 where even without jitter the simulated efficiency is below.
    """
    profile = profile_of(FITTED, shapes)
    config = simulation.configure_engine(FITTED.engine, dict(FITTED.options))
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = (low + high) / 2
        machine = SUMMIT.model_copy(update={"jitter": Jitter.model_validate({"fraction": middle, "kind": kind})})
        if (
            simulation.StepSimulator(profile, FITTED.engine, config, machine).efficiency(FITTED.ranks)
            > FITTED.efficiency
        ):
            low = middle
        else:
            high = middle
    return low


def _checked(point: Published, machine: Machine, profile: Profile) -> PublishedComparison:
    options = dict(point.options)
    config = simulation.configure_engine(point.engine, options)
    found = simulation.StepSimulator(profile, point.engine, config, machine).point(point.ranks)
    versions = []
    for links in (_RINGS, _TREES):
        for cache in (_CACHED, _UNCACHED) if point.engine == "horovod" else ({},):
            config = simulation.configure_engine(point.engine, options | cache)
            setting = simulation.StepSimulator(profile, point.engine, config, machine.with_settings(links))
            versions.append(setting.efficiency(point.ranks))
    return PublishedComparison(
        published=point,
        fitted=point is FITTED,
        efficiency=found.efficiency,
        low=found.low,
        high=found.high,
        least=min(versions),
        most=max(versions),
        bends=found.bends,
    )


def _bound(point: Published, machine: Machine) -> PublishedComparison:
    """Nothing but the waiting for the slowest rank."""
    slow, fast = (slowdown_quantile(machine.jitter, point.ranks, share) for share in reversed(simulation.BAND))
    efficiency = 1 / expected_slowdown(machine.jitter, point.ranks)
    return PublishedComparison(point, False, efficiency, 1 / slow, 1 / fast, efficiency, efficiency, "jitter")
