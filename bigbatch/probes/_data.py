"""Samples to probe with: tensors, any map-style dataset, or the training set of a run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

from bigbatch import rng
from bigbatch.errors import Problem
from bigbatch.models import move_inputs
from bigbatch.probes._objective import SAMPLES, Cast, Loss, Objective, count, rows

if TYPE_CHECKING:
    from bigbatch.probes._contract import State


class Data(Protocol):
    """Samples with numbers 0..len-1, each always the same."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        """Inputs and targets of some samples, where the model is."""


class Tensors:
    """Samples in memory."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return count(self.inputs)

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        return rows(self.inputs, indices), rows(self.targets, indices)


class _MapStyle:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        from torch.utils.data import default_collate

        inputs, targets = default_collate([self.dataset[index] for index in indices.tolist()])
        return inputs, targets


def as_data(data: Any) -> Data:
    """(inputs, targets), a torch Dataset of such pairs, or what already offers `fetch`."""
    if hasattr(data, "fetch"):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Tensors(*data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Tensor):
        return _MapStyle(data)
    raise Problem(f"{type(data).__name__} is no data to probe with: give (inputs, targets), or a map-style Dataset")


@dataclass(frozen=True)
class Subject:
    """A model, its loss, and the samples to ask it about."""

    model: nn.Module
    loss: Loss
    data: Data
    seed: int = 0
    cast: Cast = nullcontext

    @classmethod
    def of_run(cls, state: State) -> Subject:
        return cls(state.model, run_loss, TrainingSet(state), state.run.seed, state.gradient.forward.autocast)

    def chosen(self, samples: int) -> Tensor:
        """The numbers of the samples that every call with this seed uses, at most this many."""
        return rng.permutation(len(self.data), self.seed, SAMPLES)[:samples]

    def objective(self, samples: Tensor, *masks: int, micro_batch: int | None = None) -> Objective:
        """The loss on some samples. Their dropout masks follow from the seed and the given numbers."""
        inputs, targets = self.data.fetch(samples)
        seed = int(rng.bits(self.seed, *masks)[0] >> 1)
        return Objective(self.model, self.loss, inputs, targets, micro_batch=micro_batch, seed=seed, cast=self.cast)


class TrainingSet:
    """A run's training samples: filtered as the run says, not augmented, text without a carried state."""

    def __init__(self, state: State) -> None:
        self._kept = state.batches.kept
        self._samples = state.batches.samples(state.batch.global_batch)
        self._model, self._device = state.model, state.engine.device

    def __len__(self) -> int:
        return len(self._samples) if self._kept is None else len(self._kept)

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self._samples.fetch(indices if self._kept is None else self._kept[indices])
        return move_inputs(inputs, self._model, self._device), targets.to(self._device)


def run_loss(outputs: Any, targets: Tensor) -> Tensor:
    """The loss that a run trains with, one a sample; models of text return their state too."""
    from bigbatch.losses import per_sample_loss

    return per_sample_loss(outputs[0] if isinstance(outputs, tuple) else outputs, targets)


def fixed_objective(state: State, samples: int) -> Objective:
    """The run's loss on samples that stay the same through the run, and on every rank."""
    subject = Subject.of_run(state)
    return subject.objective(subject.chosen(samples), micro_batch=micro_batch(state))


def micro_batch(state: State) -> int:
    """The run's own pieces: BatchNorm normalises over as many samples as in training."""
    return state.split.micro_batch
