"""What the network filter drops: the digits for which the trained baseline finds no place."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DROP = 0.05
_SHOWN = 20  # pictures on the page


@dataclass(frozen=True)
class Dropped:
    """Counts by class, and the digits that lie farthest from their own kind."""

    of: int
    by_class: dict[str, int]
    pictures: list[tuple[bytes, str]]  # PNG, and what it is labelled as and taken for
    taken_for_another: int  # of the dropped, how many the network itself puts into another class; -1: not known
    reducer: str

    @property
    def count(self) -> int:
        return sum(self.by_class.values())


def dropped(folder: Path) -> Dropped:
    """In a worker: filter the digits by the run in a folder. Without openTSNE, DBSCAN works on principal components."""
    from bigbatch import datasets, filters
    from bigbatch.artifacts.folder import Folder
    from bigbatch.libraries import is_installed

    dataset = datasets.load(Folder(folder).run().dataset)
    reducer = "tsne" if is_installed("openTSNE") else "none"
    kept = filters.network(folder, dataset, drop=DROP, per_class=False, reducer=reducer)
    labels = dataset.train.labels
    gone = (~kept.mask).nonzero().squeeze(1)
    predicted = kept.arrays.get("prediction")
    another = -1 if predicted is None else sum(int(predicted[i]) != int(labels[i]) for i in gone.tolist())
    by_class = {name: int((labels[gone] == index).sum()) for index, name in enumerate(dataset.classes)}
    worst = kept.score.argsort(descending=True)[:_SHOWN].tolist()
    pictures = [(_png(dataset.train, i), _caption(i, labels, predicted, dataset.classes)) for i in worst]
    return Dropped(len(labels), by_class, pictures, another, reducer)


def _caption(sample: int, labels: Any, predicted: Any, classes: tuple[str, ...]) -> str:
    label = classes[int(labels[sample])]
    if predicted is None or int(predicted[sample]) == int(labels[sample]):
        return label
    return f"{label}, taken for {classes[int(predicted[sample])]}"


def _png(samples: Any, index: int) -> bytes:
    from PIL import Image

    pixels = (samples.images[index, 0].float() * (255 / samples.white)).round().byte().numpy()
    buffer = io.BytesIO()
    Image.fromarray(255 - pixels).save(buffer, "PNG")  # dark on light, as it was written
    return buffer.getvalue()
