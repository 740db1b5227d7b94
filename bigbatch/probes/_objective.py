"""The mean loss of a model on some samples, as a function of its parameters: value, gradient, Hessian times vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from bigbatch import rng
from bigbatch.errors import Problem
from bigbatch.probes._contract import Unmeasurable
from bigbatch.training.batches import Split

# loss(outputs, targets): the mean over samples, or one number a sample
Loss = Callable[[Any, Any], Tensor]
Cast = Callable[[], AbstractContextManager[Any]]
Vector = list[Tensor]  # one tensor a parameter

# keeps a probe's random numbers apart from those of the training (see rng.py)
SAMPLES, MASKS, DIRECTIONS, COORDINATES, DRAWS = 601, 602, 603, 604, 605


class Objective:
    """A loss on fixed samples. Every call draws the same dropout masks, so that differences do not see them.

    `inputs` is a tensor, a tuple or a dict of tensors: model(x), model(*x) or model(**x). Samples are run in pieces
    of `micro_batch`, over which BatchNorm normalises where the model is in training mode. To be used `untouched`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        inputs: Any,
        targets: Any,
        *,
        micro_batch: int | None = None,
        seed: int = 0,
        cast: Cast = nullcontext,
    ) -> None:
        self.model = model
        self.named = trainable(model)
        self.parameters: Vector = list(self.named.values())
        self.samples = count(inputs)
        self.micro_batch = min(micro_batch or self.samples, self.samples)
        self._loss = loss
        self.inputs, self.targets = inputs, targets
        self._seed = seed
        self._cast = cast

    def piece_losses(self) -> Iterator[tuple[Tensor, int]]:
        """What the loss gives for each piece, with its graph, and how many samples it has."""
        for piece in Split(1, self.micro_batch).slices(self.samples)[0]:
            part = slice(piece.start, piece.stop)
            rng.seed_torch(self._seed, piece.start, MASKS)
            with self._cast():
                losses = self._loss(call(self.model, rows(self.inputs, part)), rows(self.targets, part))
            if losses.numel() != 1 and losses.shape != (piece.count,):
                raise Problem(
                    f"the loss has shape {tuple(losses.shape)} for {piece.count} samples: "
                    f"return the mean over samples, or one loss a sample as reduction='none' does"
                )
            yield losses, piece.count

    def per_sample(self) -> Tensor:
        """One loss a sample, without a graph."""
        with torch.no_grad():
            return torch.cat([each_sample(losses, size).detach() for losses, size in self.piece_losses()])

    def value(self) -> float:
        """The mean loss."""
        with torch.no_grad():
            total = sum(float(losses.double().mean()) * size for losses, size in self.piece_losses())
        return total / self.samples

    def gradient(self, parameters: Sequence[Tensor] | None = None) -> Vector:
        """∇L for the given parameters, or all of them."""
        wanted = self.parameters if parameters is None else list(parameters)
        total = [torch.zeros_like(parameter) for parameter in wanted]
        for losses, size in self.piece_losses():
            share = losses.mean() * (size / self.samples)
            for added, piece in zip(total, differentiated(share, wanted), strict=True):
                added.add_(piece)
        require_finite(total, "the gradient")
        return total

    def about(self) -> dict[str, Any]:
        """How it was measured: what a reader of the numbers has to know."""
        return {"samples": self.samples, **treatment(self.model, self.micro_batch)}


class Hessian:
    """The second derivatives of an objective where its parameters are now. The graph is built once and kept."""

    def __init__(self, objective: Objective) -> None:
        self.parameters = objective.parameters
        total: Vector | None = None
        with twice_differentiable():
            for losses, size in objective.piece_losses():
                share = losses.mean() * (size / objective.samples)
                piece = differentiated(share, self.parameters, create_graph=True)
                total = piece if total is None else [a + b for a, b in zip(total, piece, strict=True)]
        assert total is not None
        self._graph = total
        self.gradient: Vector = [gradient.detach() for gradient in total]
        require_finite(self.gradient, "the gradient")

    def times(self, vector: Vector) -> Vector:
        """H·v, exact: the gradient of g·v."""
        pairs = [(g, v) for g, v in zip(self._graph, vector, strict=True) if g.requires_grad]
        if not pairs:  # a loss that is linear in all parameters
            return [torch.zeros_like(parameter) for parameter in self.parameters]
        product = torch.autograd.grad(
            [gradient for gradient, _ in pairs],
            self.parameters,
            [direction for _, direction in pairs],
            retain_graph=True,
            materialize_grads=True,
        )
        return list(product)

    def diagonal_at(self, parameter_number: int, coordinates: Tensor) -> Tensor:
        """∂²L/∂w² of some coordinates of one parameter: a Hessian-vector product each, within that parameter."""
        gradient, parameter = self._graph[parameter_number].reshape(-1), self.parameters[parameter_number]
        found = torch.zeros(len(coordinates), dtype=parameter.dtype, device=parameter.device)
        if gradient.requires_grad:
            for place, coordinate in enumerate(coordinates.tolist()):
                (row,) = torch.autograd.grad(gradient[coordinate], parameter, retain_graph=True, materialize_grads=True)
                found[place] = row.reshape(-1)[coordinate]
        return found


def trainable(model: nn.Module) -> dict[str, Parameter]:
    """The parameters that a gradient is asked of."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not named:
        raise Problem(
            f"{type(model).__name__} has no trainable parameters to probe: unfreeze some, or give another model"
        )
    return named


def differentiated(
    loss: Tensor, parameters: Sequence[Tensor], *, create_graph: bool = False, retain_graph: bool = False
) -> Vector:
    if not loss.requires_grad:
        raise Problem("the loss does not depend on the model's parameters: check that it is made of model(inputs)")
    kept = create_graph or retain_graph
    return list(
        torch.autograd.grad(loss, parameters, create_graph=create_graph, retain_graph=kept, materialize_grads=True)
    )


def require_finite(tensors: Sequence[Tensor], what: str) -> None:
    # one number for all: a NaN or an infinity anywhere survives the sum of magnitudes
    if not math.isfinite(float(torch.stack(torch._foreach_norm(list(tensors), 1, dtype=torch.float64)).sum())):
        raise Unmeasurable(f"{what} is not finite: probe an earlier checkpoint, or train with a lower learning rate")


def each_sample(losses: Tensor, samples: int) -> Tensor:
    """Losses one a sample, where nothing less will do."""
    if losses.shape != (samples,):
        raise Problem(
            f"the loss has shape {tuple(losses.shape)} for {samples} samples, but this probe tells samples apart: "
            f"return one loss a sample, as reduction='none' does"
        )
    return losses


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Only kernels whose backward pass can be differentiated: fused attention and cuDNN's LSTM cannot."""
    with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
        yield


def treatment(model: nn.Module, group: int) -> dict[str, Any]:
    """The mode of the model, and what BatchNorm and dropout do in it; only what it has is named."""
    modes = {module.training for module in model.modules()}
    mode = "mixed" if len(modes) > 1 else "train" if modes == {True} else "eval"
    said: dict[str, Any] = {"mode": mode}
    norms = {module.training for module in model.modules() if isinstance(module, _BatchNorm)}
    if norms:
        said["batchnorm"] = (
            f"groups of {group}" if norms == {True} else "running statistics" if len(norms) == 1 else "mixed"
        )
    dropouts = {module.training for module in model.modules() if isinstance(module, _DropoutNd) and module.p > 0}
    if dropouts:
        said["dropout"] = "the same masks in every evaluation" if True in dropouts else "off"
    return said


# -- inputs of any shape


def call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def rows(value: Any, part: slice | Tensor) -> Any:
    """Some samples of a tensor, or of all tensors in a tuple, list or dict."""
    if isinstance(value, dict):
        return {key: rows(item, part) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(rows(item, part) for item in value)
    return value[part]


def count(inputs: Any) -> int:
    """How many samples there are."""
    if isinstance(inputs, dict):
        return count(next(iter(inputs.values())))
    samples = count(inputs[0]) if isinstance(inputs, tuple | list) else len(inputs)
    if samples == 0:
        raise Problem("there are no samples to probe with: give at least one")
    return samples


# -- vectors over all parameters


def dot(a: Vector, b: Vector) -> float:
    products = [torch.dot(x.reshape(-1).double(), y.reshape(-1).double()) for x, y in zip(a, b, strict=True)]
    return float(torch.stack(products).sum())


def norm(vector: Sequence[Tensor]) -> float:
    return float(torch.stack(torch._foreach_norm(list(vector), dtype=torch.float64)).square().sum().sqrt())


def flat(vector: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in vector])


def shaped(flat_vector: Tensor, like: Sequence[Tensor]) -> Vector:
    pieces = flat_vector.split([tensor.numel() for tensor in like])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, like, strict=True)]
