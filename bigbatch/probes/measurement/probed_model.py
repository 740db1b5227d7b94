"""A model with its loss and the samples to measure it on: anybody's, or those of a run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from bigbatch import parts, rng
from bigbatch.losses import per_sample_loss
from bigbatch.models import move_inputs
from bigbatch.probes.measurement.objective import SAMPLES, Cast, Loss, Objective
from bigbatch.probes.measurement.samples import IndexedSamples

if TYPE_CHECKING:
    from bigbatch.probes.measurement.contract import ProbeState


@dataclass(frozen=True)
class ProbedModel:
    model: nn.Module
    loss: Loss
    samples: IndexedSamples
    seed: int = 0
    cast: Cast = nullcontext

    @classmethod
    def of_run(cls, state: ProbeState) -> ProbedModel:
        loss = partial(run_loss, config=state.run.loss)
        return cls(state.model, loss, TrainingSamples(state), state.run.seed, state.gradient.forward.autocast)

    def fixed_indices(self, count: int) -> Tensor:
        """The indices of the samples that every call with this seed uses, at most this many."""
        return rng.permutation(len(self.samples), self.seed, SAMPLES)[:count]

    def objective(self, indices: Tensor, *masks: int, micro_batch: int | None = None) -> Objective:
        """The loss on some samples. Dropout masks follow from the seed and the numbers in `masks`."""
        inputs, targets = self.samples.fetch(indices)
        seed = int(rng.bits(self.seed, *masks)[0] >> 1)
        return Objective(self.model, self.loss, inputs, targets, micro_batch=micro_batch, seed=seed, cast=self.cast)


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


def run_loss(outputs: Any, targets: Tensor, config: parts.Config) -> Tensor:
    """The loss that a run trains with, one per sample; models of text return their hidden state too."""
    return per_sample_loss(outputs[0] if isinstance(outputs, tuple) else outputs, targets, config)


def fixed_objective(state: ProbeState, samples: int) -> Objective:
    """The run's loss on samples that stay the same through the run, and on every rank.

    Micro-batches are the run's own: BatchNorm normalises over as many samples as in training.
    """
    probed = ProbedModel.of_run(state)
    return probed.objective(probed.fixed_indices(samples), micro_batch=state.split.micro_batch)
