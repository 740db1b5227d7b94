"""What a paper says about the batch to prefer: shown beside the measurements, never mixed into them."""

from __future__ import annotations

from dataclasses import dataclass

from bigbatch.probes.measurement.record import Record


@dataclass(frozen=True)
class AccuracySeries(Record):
    name: str
    batches: tuple[int, ...]
    accuracies: tuple[float, ...]


@dataclass(frozen=True)
class PublishedPrior(Record):
    """Gahlot et al. 2020, section IV. Figs. 4 and 5 (preferred batch against learning rate) are pictures without
    numbers in the text, which gives their range and shape; section IV-B gives accuracies at a few batches."""

    source: str = "Gahlot, Yin, Shankar 2020, Figs. 4 and 5"
    setting: str = "ResNet-18 to ResNet-152 on CIFAR-10, SGD, 50 epochs"
    batches: tuple[int, int] = (16, 20480)
    says: str = (
        "at each learning rate the accuracy rises with the batch up to a preferred one and falls beyond it, slowly for "
        "small networks and at once for large ones; the peaks are close together at low learning rates, apart at high "
        "ones"
    )
    series: tuple[AccuracySeries, ...] = (
        AccuracySeries("network-filtered", (64, 128, 256, 6272), (81.8, 82.7, 83.2, 77.5)),
        AccuracySeries("full", (256, 6272), (82.6, 75.2)),
        AccuracySeries("randomly filtered", (64, 128, 256), (79.2, 80.5, 80.9)),
    )
    caption: str = (
        "ResNet-18 on CIFAR-10, the accuracies that section IV-B states. Weight decay differs between them (0.005, "
        "0.012 and, at 6272 on 8 GPUs, 0.01), so the lines are only a guide. A prior: the answer does not use it."
    )
    mixed_in: bool = False
