"""Samples of any kind as numbered ones: tensors, Datasets, and what can only be iterated over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bigbatch.errors import Problem
from bigbatch.probes.measurement.samples import IndexedSamples as Data
from bigbatch.probes.measurement.samples import index_samples as as_data

_MOST_GATHERED = 16_384


class OnDevice:
    """The same samples, where the model is."""

    def __init__(self, data: Data, device: torch.device) -> None:
        self._data, self._device = data, device

    def __len__(self) -> int:
        return len(self._data)

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        inputs, targets = self._data.fetch(indices)
        return _moved(inputs, self._device), _moved(targets, self._device)


def gathered(data: Any) -> tuple[Data, list[str]]:
    """(inputs, targets) or a map-style Dataset as they are; of a DataLoader or another iterable what its first
    batches have, and a sentence if that was not all."""
    if hasattr(data, "__getitem__") or hasattr(data, "fetch") or not hasattr(data, "__iter__"):
        return as_data(data), []
    batches: list[tuple[Any, Any]] = []
    count, more = 0, False
    for item in data:
        if count >= _MOST_GATHERED:
            more = True
            break
        inputs, targets = _pair(item)
        batches.append((inputs, targets))
        count += _length(targets)
    if not batches:
        raise Problem(f"{type(data).__name__} gave no samples: give one that yields (inputs, targets)")
    whole = _joined([inputs for inputs, _ in batches]), _joined([targets for _, targets in batches])
    note = [f"only the first {count:,} samples of the {type(data).__name__} were read, and count as all of them"]
    return as_data(whole), note if more else []


def _pair(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise Problem(f"the data yields {type(item).__name__}: it has to yield pairs of (inputs, targets)")
    inputs, targets = item
    if isinstance(targets, Tensor) and targets.dim() > 0:
        return inputs, targets
    return _alone(inputs), torch.as_tensor(targets)[None]  # a sample by itself


def _alone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _alone(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_alone(item) for item in value)
    return torch.as_tensor(value)[None]


def _length(value: Any) -> int:
    return len(value)


def _joined(values: Iterable[Any]) -> Any:
    values = list(values)
    first = values[0]
    if isinstance(first, dict):
        return {key: _joined(value[key] for value in values) for key in first}
    if isinstance(first, tuple | list):
        return type(first)(_joined(part) for part in zip(*values, strict=True))
    return torch.cat(values)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_moved(item, device) for item in value)
    return value.to(device) if isinstance(value, Tensor) else value
