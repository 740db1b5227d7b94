"""What the network filter drops: the digits that belong to no cluster of their class in the trained baseline."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bigbatch import datasets, filters
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.filters.pipeline.results import SampleCounts, count_samples
from bigbatch.libraries import is_installed

DROP_FRACTION = 0.05
_MOST_PICTURES = 20


@dataclass(frozen=True)
class DroppedDigits:
    counts: SampleCounts
    misclassified: int  # of the dropped digits
    pictures: list[tuple[bytes, str]]  # of the highest scores: PNG and caption
    reducer: str

    def describe(self) -> str:
        by_class = {name: counts.dropped for name, counts in self.counts.by_class.items()}
        most = sorted(by_class, key=lambda name: by_class[name], reverse=True)[:3]
        classes = ", ".join(f"{by_class[name]} of class {name}" for name in most)
        samples = self.counts.kept + self.counts.dropped
        return f"the network filter drops {self.counts.dropped} of {samples:,} digits, most of them {classes}"


def filter_digits(run_folder: Path) -> DroppedDigits:
    """Filter the digits by a trained run. Without openTSNE, DBSCAN works on principal components."""
    dataset = datasets.load(Folder(run_folder).run().dataset)
    reducer = "tsne" if is_installed("openTSNE") else "none"
    kept = filters.network(run_folder, dataset, drop=DROP_FRACTION, per_class=False, reducer=reducer)
    samples, names = dataset.train, dataset.classes
    assert isinstance(samples, InMemoryImages)
    predictions = torch.as_tensor(kept.arrays["prediction"])
    pictures = []
    for sample in kept.score.argsort(descending=True)[:_MOST_PICTURES].tolist():
        label, prediction = names[int(samples.labels[sample])], names[int(predictions[sample])]
        caption = label if label == prediction else f"{label}, predicted as {prediction}"
        pictures.append((_encode_png(samples.images[sample, 0] / samples.white), caption))
    misclassified = int((predictions != samples.labels)[~kept.mask].sum())
    return DroppedDigits(count_samples(kept.mask, samples.labels, names), misclassified, pictures, reducer)


def _encode_png(image: Tensor) -> bytes:
    """Encode an image of values from 0 to 1, dark on light."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray((255 * (1 - image)).round().byte().numpy()).save(content, "PNG")
    return content.getvalue()
