"""What a model may be fed: asked when it is built, so that a wrong pairing is one sentence, not a stack of layers."""

from __future__ import annotations

from bigbatch.datasets import Dataset
from bigbatch.errors import Problem


def image_shape(dataset: Dataset, model: str, *, smallest: int = 1, instead: str = "cnn") -> tuple[int, int, int]:
    """(channels, height, width) of a dataset of images whose sides are at least `smallest` pixels."""
    require_classes(dataset, model)
    shape = dataset.sample_shape
    if len(shape) != 3:
        raise Problem(
            f"model '{model}' takes images (channels, height, width), not samples of shape {shape}: use 'mlp'"
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise Problem(
            f"model '{model}' needs images of at least {smallest} x {smallest} pixels, "
            f"not {height} x {width}: use {instead}"
        )
    return channels, height, width


def require_classes(dataset: Dataset, model: str) -> None:
    """Refuse text: one label a sample is what the model gives."""
    if dataset.task != "classify":
        raise Problem(f"model '{model}' gives one label a sample and cannot learn a language: use 'lstm_words'")


def require_language(dataset: Dataset, model: str) -> None:
    """Refuse labelled samples: the next word after each is what the model gives."""
    if dataset.task != "language":
        raise Problem(
            f"model '{model}' reads words, not samples of shape {dataset.sample_shape} with labels: "
            "use 'cnn', 'resnet' or 'lstm'"
        )
