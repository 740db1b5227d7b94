"""Checks that a dataset fits a model, made when the model is built."""

from __future__ import annotations

from bigbatch.datasets import Dataset
from bigbatch.errors import Problem


def image_shape(dataset: Dataset, model: str, *, smallest: int = 1, instead: str = "cnn") -> tuple[int, int, int]:
    """Return (channels, height, width) of a dataset of images; refuse sides of less than `smallest` pixels."""
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
    """Refuse text: the model predicts one label per sample."""
    if dataset.task != "classify":
        raise Problem(f"model '{model}' predicts one label per sample and cannot learn a language: use 'lstm_words'")


def require_language(dataset: Dataset, model: str) -> None:
    """Refuse labelled samples: the model predicts the next word."""
    if dataset.task != "language":
        raise Problem(
            f"model '{model}' reads words, not samples of shape {dataset.sample_shape} with labels: "
            "use 'cnn', 'resnet' or 'lstm'"
        )
