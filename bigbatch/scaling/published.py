"""Efficiencies that others measured beside those of the simulator: fitted on one point, tested on the others.

The one fitted number is the jitter of Summit; every machine below uses it. Where a publication does not give what a
simulation needs (layers, times, batch per rank), the point is tested only against the bound that remains when all
communication is hidden: waiting for the slowest rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bigbatch.scaling.jitter import expected_slowdown, slowdown_quantile
from bigbatch.scaling.machine import Jitter, Machine, find_machine
from bigbatch.scaling.profile import Profile
from bigbatch.scaling.simulation import BAND, StepSimulator, configure_engine
from bigbatch.scaling.workload import imagenet_layers

_TENSORFLOW = "TensorFlow benchmarks page, DGX-1 with P100, May 2017"
_NVIDIA = "NVIDIA DeepLearningExamples, PyTorch ResNet-50 v1.5, DGX-1 16 GB"
_HOROVOD_512 = "Horovod's documentation, 128 servers of 4 Pascal GPUs, RoCE 25 Gbit/s, batch 64"
_HOROVOD_128 = "Horovod's README of 2017, 32 servers of 4 Pascal GPUs, RoCE 25 Gbit/s, batch 64"
AGREES, NEAR = 0.01, 0.05  # of efficiency; published ones are rounded to about a point


@dataclass(frozen=True)
class PublishedPoint:
    """An efficiency that somebody measured, and what is known of how."""

    what: str
    ranks: int
    efficiency: float
    source: str
    machine: str = "summit"
    model: str | None = None  # None: layers and times are not known
    depth: int | None = None
    rank_batch: int = 64
    samples_per_second: float = 0.0  # of one rank
    throughput_source: str = ""
    engine: str = "horovod"
    options: Mapping[str, object] = field(default_factory=dict)
    assumed: str = ""
    caveat: str = ""  # what may explain an error


def _pascal_point(
    what: str, ranks: int, efficiency: float, model: str, samples_per_second: float, depth: int | None = None
) -> PublishedPoint:
    """A point of Horovod in 2017, which had no response cache, cycles of 5 ms and buffers of 64 MiB."""
    interpolated = "interpolated over FLOPs between ResNet-50 and -152 of the " if depth == 101 else ""
    return PublishedPoint(
        what=f"{what}, Pascal",
        ranks=ranks,
        efficiency=efficiency,
        source=_HOROVOD_512 if ranks == 512 else _HOROVOD_128,
        machine="pascal",
        model=model,
        depth=depth,
        samples_per_second=samples_per_second,
        throughput_source=f"{interpolated}{_TENSORFLOW}",
        options={"cycle_ms": 5.0, "fusion_mb": 64.0, "cache_capacity": 0},
        assumed="P100 over PCIe; float32; rings only, no response cache, 5 ms cycles, 64 MiB buffers (2017)",
        caveat="The ring's latencies are those of NCCL's current tuner, and each of Horovod's many all-reduces pays "
        "them; the throughput of one rank is interpolated."
        if depth == 101
        else "",
    )


def _point_without_profile(what: str, ranks: int, efficiency: float, source: str) -> PublishedPoint:
    return PublishedPoint(
        *(what, ranks, efficiency, source),
        assumed="layers and times are not in the abstract: all communication hidden, only the slowest rank waited for",
        caveat="Jitter in proportion to the step cannot hold for steps of every length: slowdowns of constant length "
        "matter less in a long step.",
    )


FITTED = PublishedPoint(
    what="ResNet-50, Summit",
    ranks=6144,
    efficiency=0.87,
    source="Yin et al. 2019, abstract",
    model="resnet",
    depth=50,
    samples_per_second=367.0,
    throughput_source=_NVIDIA,
    assumed="float32, batch 64 a rank, Horovod with response cache, trees; the abstract names none of these",
)
TESTED = (
    PublishedPoint(
        what="ResNet-50, DGX-1",
        ranks=8,
        efficiency=7.76 / 8,
        source=f"{_NVIDIA} (2855 over 367 images/s)",
        machine="dgx1",
        model="resnet",
        depth=50,
        rank_batch=128,
        samples_per_second=367.0,
        throughput_source=_NVIDIA,
        engine="ddp",
        assumed="batch 128 a rank; NVLink 120 GB/s; the measured time includes reading images",
    ),
    _pascal_point("ResNet-101", 128, 0.90, "resnet", 129.0, 101),
    _pascal_point("Inception-V3", 128, 0.90, "inception3", 142.0),
    _pascal_point("VGG-16", 128, 0.79, "vgg16", 154.0),
    _pascal_point("ResNet-101", 512, 0.90, "resnet", 129.0, 101),
    _pascal_point("Inception-V3", 512, 0.90, "inception3", 142.0),
    _pascal_point("VGG-16", 512, 0.68, "vgg16", 154.0),
    _point_without_profile("Tiramisu, Piz Daint", 5300, 0.790, "Kurth et al. 2018, abstract"),
    _point_without_profile("DeepLabv3+, Summit", 27360, 0.907, "Kurth et al. 2018, abstract"),
    _point_without_profile("FCN, Summit", 27600, 0.93, "Laanait et al. 2019, abstract"),
)


@dataclass(frozen=True)
class PublishedComparison:
    """A published point and the simulated one. `least` and `most`: over library versions (rings, trees, cache)."""

    published: PublishedPoint
    efficiency: float
    low: float
    high: float
    least: float
    most: float
    bottleneck: str

    @property
    def fitted(self) -> bool:
        return self.published is FITTED

    @property
    def error(self) -> float:
        """Simulated minus published efficiency."""
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


def compare_published(jitter: Jitter | None = None) -> list[PublishedComparison]:
    """Simulate every published point, with Summit's jitter or another one."""
    return [_compare(point, jitter) for point in (FITTED, *TESTED)]


def profile_point(point: PublishedPoint, machine: Machine) -> Profile:
    """Return what one rank of a published point computes in a step."""
    assert machine.device is not None
    assert point.model is not None
    profile = machine.device.profile(point.what, imagenet_layers(point.model, point.depth), point.rank_batch)
    return profile.at_throughput(point.samples_per_second, point.throughput_source)


def _compare(point: PublishedPoint, jitter: Jitter | None) -> PublishedComparison:
    machine = find_machine(point.machine)
    if jitter is not None:
        machine = machine.model_copy(update={"jitter": jitter})
    if point.model is None:  # nothing is known but the waiting for the slowest rank
        slow, fast = (slowdown_quantile(machine.jitter, point.ranks, quantile) for quantile in reversed(BAND))
        efficiency = 1 / expected_slowdown(machine.jitter, point.ranks)
        return PublishedComparison(point, efficiency, 1 / slow, 1 / fast, efficiency, efficiency, "jitter")
    profile = profile_point(point, machine)

    def simulator(machine: Machine, **version: Any) -> StepSimulator:
        return StepSimulator(profile, configure_engine(point.engine, {**point.options, **version}), machine)

    found = simulator(machine).scaling_point(point.ranks)
    caches = ({"cache_capacity": 1024}, {"cache_capacity": 0}) if point.engine == "horovod" else ({},)
    versions = [
        simulator(machine.with_settings({"links.algorithms": algorithms}), **cache).efficiency(point.ranks)
        for algorithms in ("ring", "auto")
        for cache in caches
    ]
    return PublishedComparison(
        point, found.efficiency, found.low, found.high, min(versions), max(versions), found.bottleneck
    )
