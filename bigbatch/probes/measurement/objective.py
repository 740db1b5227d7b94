"""The mean loss of a model on some samples, as a function of its parameters: value, gradient, Hessian times vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map_only

from bigbatch import parts, rng
from bigbatch.errors import Problem
from bigbatch.losses import per_sample_loss
from bigbatch.position import split_evenly
from bigbatch.probes.measurement.contract import Unmeasurable
from bigbatch.probes.measurement.samples import IndexedSamples, TrainingSamples, count_samples, select_samples

if TYPE_CHECKING:
    from bigbatch.probes.measurement.contract import ProbeState

# loss(outputs, targets): the mean over samples, or one loss per sample
Loss = Callable[[Any, Any], Tensor]
Cast = Callable[[], AbstractContextManager[Any]]
Vector = list[Tensor]  # one tensor per parameter

# keep the random numbers of probes apart from those of training (see rng.py)
SAMPLES, MASKS, DIRECTIONS, COORDINATES, DRAWS = 601, 602, 603, 604, 605


@dataclass(eq=False)
class Objective:
    """A loss on fixed samples. Every call draws the same dropout masks, so that differences do not depend on them.

    `inputs` is a tensor, a tuple or a dict of tensors: model(x), model(*x) or model(**x). Samples are run in
    micro-batches, over which BatchNorm normalises in training mode. Use it within `preserve_model`.
    """

    model: nn.Module
    loss: Loss
    inputs: Any
    targets: Any
    _: KW_ONLY
    micro_batch: int | None = None  # None: all samples at once
    seed: int = 0
    cast: Cast = nullcontext

    def __post_init__(self) -> None:
        self.named = trainable_parameters(self.model)
        self.parameters: Vector = list(self.named.values())
        self.samples = count_samples(self.inputs)
        self.group = min(self.micro_batch or self.samples, self.samples)

    def micro_batch_losses(self) -> Iterator[tuple[Tensor, int]]:
        """What the loss returns for each micro-batch, with its graph, and its number of samples."""
        for micro_batch in split_evenly(0, self.samples, -(-self.samples // self.group)):
            part = slice(micro_batch.start, micro_batch.stop)
            rng.seed_torch(self.seed, micro_batch.start, MASKS)
            with self.cast():
                outputs = call_model(self.model, select_samples(self.inputs, part))
                losses = self.loss(outputs, select_samples(self.targets, part))
            if losses.numel() != 1 and losses.shape != (micro_batch.count,):
                raise Problem(
                    f"the loss has shape {tuple(losses.shape)} for {micro_batch.count} samples: "
                    f"return the mean over samples, or one loss per sample as reduction='none' does"
                )
            yield losses, micro_batch.count

    def value(self) -> float:
        """The mean loss."""
        with torch.no_grad():
            total = sum(float(losses.double().mean()) * size for losses, size in self.micro_batch_losses())
        return total / self.samples

    def gradient(self, parameters: Sequence[Tensor] | None = None) -> Vector:
        """∇L for the given parameters, or all of them."""
        wanted = self.parameters if parameters is None else list(parameters)
        total = [torch.zeros_like(parameter) for parameter in wanted]
        for losses, size in self.micro_batch_losses():
            weighted = losses.mean() * (size / self.samples)
            for added, part in zip(total, differentiate(weighted, wanted), strict=True):
                added.add_(part)
        require_finite(total, "the gradient")
        return total

    def conditions(self) -> dict[str, Any]:
        """How the loss was measured: number of samples, mode, BatchNorm, dropout."""
        return {"samples": self.samples, **describe_mode(self.model, self.group)}


@dataclass(frozen=True)
class ProbedModel:
    """A model with its loss and the samples to measure it on: anybody's, or those of a run."""

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

    def fetch(self, indices: Tensor) -> tuple[Any, Any]:
        """Inputs and targets of some samples, on the model's device."""
        device = next(self.model.parameters()).device
        inputs, targets = tree_map_only(Tensor, lambda tensor: tensor.to(device), self.samples.fetch(indices))
        return inputs, targets

    def objective(self, indices: Tensor, *masks: int, micro_batch: int | None = None) -> Objective:
        """The loss on some samples. Dropout masks follow from the seed and the numbers in `masks`."""
        inputs, targets = self.fetch(indices)
        seed = int(rng.bits(self.seed, *masks)[0] >> 1)
        return Objective(self.model, self.loss, inputs, targets, micro_batch=micro_batch, seed=seed, cast=self.cast)


def run_loss(outputs: Any, targets: Tensor, config: parts.Config) -> Tensor:
    """The loss that a run trains with, one per sample; models of text return their hidden state too."""
    return per_sample_loss(outputs[0] if isinstance(outputs, tuple) else outputs, targets, config)


def fixed_objective(state: ProbeState, samples: int) -> Objective:
    """The run's loss on samples that stay the same through the run, and on every rank.

    Micro-batches are the run's own: BatchNorm normalises over as many samples as in training.
    """
    probed = ProbedModel.of_run(state)
    return probed.objective(probed.fixed_indices(samples), micro_batch=state.split.micro_batch)


class Hessian:
    """The second derivatives of an objective at its present parameters. The graph is built once and kept."""

    def __init__(self, objective: Objective) -> None:
        self.parameters = objective.parameters
        total: Vector | None = None
        # only kernels whose backward pass can be differentiated: fused attention and cuDNN's LSTM cannot
        with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
            for losses, size in objective.micro_batch_losses():
                weighted = losses.mean() * (size / objective.samples)
                part = differentiate(weighted, self.parameters, create_graph=True)
                total = part if total is None else [a + b for a, b in zip(total, part, strict=True)]
        assert total is not None
        self._graph = total
        self.gradient: Vector = [gradient.detach() for gradient in total]
        require_finite(self.gradient, "the gradient")

    def multiply(self, vector: Vector) -> Vector:
        """H·v, exact: the gradient of g·v."""
        pairs = [(g, v) for g, v in zip(self._graph, vector, strict=True) if g.requires_grad]
        if not pairs:  # a loss that is linear in all parameters
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        gradients, directions = zip(*pairs, strict=True)
        return list(
            torch.autograd.grad(gradients, self.parameters, directions, retain_graph=True, materialize_grads=True)
        )

    def diagonal_entries(self, parameter_number: int, coordinates: Tensor) -> Tensor:
        """∂²L/∂w² of some coordinates of one parameter: a Hessian-vector product each, within that parameter."""
        gradient, parameter = self._graph[parameter_number].reshape(-1), self.parameters[parameter_number]
        entries = torch.zeros(len(coordinates), dtype=parameter.dtype, device=parameter.device)
        if gradient.requires_grad:
            for number, coordinate in enumerate(coordinates.tolist()):
                (row,) = torch.autograd.grad(gradient[coordinate], parameter, retain_graph=True, materialize_grads=True)
                entries[number] = row.reshape(-1)[coordinate]
        return entries


def trainable_parameters(model: nn.Module) -> dict[str, Parameter]:
    """The parameters that require a gradient, by name; at least one."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not named:
        raise Problem(
            f"{type(model).__name__} has no trainable parameters to probe: unfreeze some, or give another model"
        )
    return named


def differentiate(loss: Tensor, parameters: Sequence[Tensor], **options: Any) -> Vector:
    """The gradient of a loss, zero for parameters that it does not depend on; options of torch.autograd.grad."""
    require_graph(loss)
    return list(torch.autograd.grad(loss, parameters, materialize_grads=True, **options))


def require_graph(loss: Tensor) -> None:
    if not loss.requires_grad:
        raise Problem("the loss does not depend on the model's parameters: compute it from model(inputs)")


def require_finite(tensors: Sequence[Tensor], what: str) -> None:
    # one number for all: a NaN or an infinity anywhere survives the sum of magnitudes
    if not math.isfinite(float(torch.stack(torch._foreach_norm(list(tensors), 1, dtype=torch.float64)).sum())):
        raise Unmeasurable(f"{what} is not finite: probe an earlier checkpoint, or train with a lower learning rate")


def describe_mode(model: nn.Module, group: int) -> dict[str, str]:
    """The model's mode, and what BatchNorm and dropout do in it, where the model has them."""
    modes = {module.training for module in model.modules()}
    described = {"mode": "mixed" if len(modes) > 1 else "train" if modes == {True} else "eval"}
    norms = {module.training for module in model.modules() if isinstance(module, _BatchNorm)}
    if norms:
        described["batchnorm"] = (
            f"groups of {group}" if norms == {True} else "running statistics" if len(norms) == 1 else "mixed"
        )
    dropouts = {module.training for module in model.modules() if isinstance(module, _DropoutNd) and module.p > 0}
    if dropouts:
        described["dropout"] = "the same masks in every evaluation" if True in dropouts else "off"
    return described


def call_model(model: nn.Module, inputs: Any) -> Any:
    """model(x), model(*x) or model(**x)."""
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


# -- vectors over all parameters


def sample_coordinates(size: int, count: int, *key: int) -> Tensor:
    """Coordinates of a tensor: all where there are few, else random ones (sometimes fewer, since none is repeated)."""
    if size <= count:
        return torch.arange(size)
    return torch.from_numpy(np.unique(rng.integers(size, *key, COORDINATES, np.arange(count))))


def dot(a: Vector, b: Vector) -> float:
    products = [torch.dot(x.reshape(-1).double(), y.reshape(-1).double()) for x, y in zip(a, b, strict=True)]
    return float(torch.stack(products).sum())


def norm(vector: Sequence[Tensor]) -> float:
    return float(tensor_norms(vector).square().sum().sqrt())


def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of each tensor, in float64."""
    return torch.stack(torch._foreach_norm(list(tensors), dtype=torch.float64))


def flatten(vector: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in vector])


def unflatten(flat_vector: Tensor, like: Sequence[Tensor]) -> Vector:
    parts = flat_vector.split([tensor.numel() for tensor in like])
    return [part.view_as(tensor) for part, tensor in zip(parts, like, strict=True)]


def move_parameters(parameters: Vector, origin: Vector, direction: Vector, distance: float) -> None:
    """parameters = origin + distance · direction."""
    with torch.no_grad():
        for parameter, start, part in zip(parameters, origin, direction, strict=True):
            torch.add(start, part, alpha=distance, out=parameter)
