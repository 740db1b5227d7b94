"""Samples to measure with, by index: tensors, any Dataset or iterable, or the training set of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from bigbatch.errors import Problem
from bigbatch.models import move_inputs

if TYPE_CHECKING:
    from bigbatch.probes.measurement.contract import ProbeState

_MAX_SAMPLES_OF_ITERABLE = 16_384


class IndexedSamples(Protocol):
    """Samples 0..len-1, each always the same."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        """Inputs and targets of some samples."""


class TensorSamples:
    """Samples in memory."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return count_samples(self.inputs)

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        return select_samples(self.inputs, indices), select_samples(self.targets, indices)


class _DatasetSamples:
    """Samples of a map-style Dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        from torch.utils.data import default_collate

        inputs, targets = default_collate([self.dataset[index] for index in indices.tolist()])
        return inputs, targets


class TrainingSamples:
    """A run's training samples: filtered as the run says, not augmented; text without hidden state."""

    def __init__(self, state: ProbeState) -> None:
        self._kept = state.batches.kept
        self._samples = state.batches.samples(state.batch.global_batch)
        self._model, self._device = state.model, state.engine.device

    def __len__(self) -> int:
        return len(self._samples) if self._kept is None else len(self._kept)

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self._samples.fetch(indices if self._kept is None else self._kept[indices])
        return move_inputs(inputs, self._model, self._device), targets.to(self._device)


def index_samples(data: Any) -> IndexedSamples:
    """(inputs, targets), a map-style Dataset of such pairs, or an object that has `fetch` already."""
    if hasattr(data, "fetch"):
        return cast(IndexedSamples, data)
    if isinstance(data, tuple) and len(data) == 2:
        return TensorSamples(*data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Tensor):
        return _DatasetSamples(data)
    raise Problem(f"{type(data).__name__} cannot be probed with: give (inputs, targets), or a map-style Dataset")


def read_samples(data: Any) -> tuple[IndexedSamples, list[str]]:
    """Like `index_samples`, and for a DataLoader or another iterable the samples of its first batches, with a warning
    if there were more."""
    if hasattr(data, "__getitem__") or hasattr(data, "fetch") or not hasattr(data, "__iter__"):
        return index_samples(data), []
    batches: list[tuple[Any, Any]] = []
    count = 0
    warnings = []
    for item in data:
        if count >= _MAX_SAMPLES_OF_ITERABLE:
            warnings = [f"only the first {count:,} samples of the {type(data).__name__} were read, and count as all"]
            break
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise Problem(f"the data yields {type(item).__name__}: it must yield pairs of (inputs, targets)")
        inputs, targets = item
        if not isinstance(targets, Tensor) or targets.dim() == 0:  # a single sample: a batch of one
            inputs = tree_map(lambda value: torch.as_tensor(value)[None], inputs)
            targets = torch.as_tensor(targets)[None]
        batches.append((inputs, targets))
        count += len(targets)
    if not batches:
        raise Problem(f"{type(data).__name__} has no samples: give one that yields (inputs, targets)")
    inputs, targets = tree_map(lambda *tensors: torch.cat(tensors), *batches)
    return TensorSamples(inputs, targets), warnings


def select_samples(value: Any, part: slice | Tensor) -> Any:
    """Some samples of a tensor, or of all tensors in a tuple, list or dict."""
    return tree_map(lambda tensor: tensor[part], value)


def count_samples(inputs: Any) -> int:
    """The number of samples; at least one."""
    count = len(tree_leaves(inputs)[0])
    if count == 0:
        raise Problem("there are no samples to probe with: give at least one")
    return count
