"""Drop what moves small networks least: the norm of each sample's gradient, GraNd (Paul et al. 2021).

At initialisation (epochs=0) the paper's result does not reproduce (Kirsch 2023, arXiv 2303.14753): the default is
to learn for a few epochs first.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from bigbatch.datasets import Dataset
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.results import Kept
from bigbatch.filters.pipeline.scoring import ScoringOptions, drop_by_difficulty
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

_GRADIENTS_AT_ONCE = 64


class Config(ScoringOptions):
    epochs: int = Field(5, ge=0)


def keep(dataset: Dataset, config: Config) -> Kept:
    def norms(number: int) -> Tensor:
        return gradient_norms(config.learner().train(dataset, number), dataset)

    return drop_by_difficulty(dataset, config, "GraNd", norms)


def gradient_norms(model: nn.Module, dataset: Dataset) -> Tensor:
    """‖∇ℓ(x, y)‖₂ over all parameters, sample by sample, in evaluation mode: BatchNorm would mix samples."""
    model.eval()
    device = ranks.device()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return per_sample_loss(functional_call(model, (weights, buffers), (x[None],)), y[None]).squeeze(0)

    norms = []
    with stage("gradients", len(dataset.train)) as advance:
        for rows in torch.arange(len(dataset.train)).split(_GRADIENTS_AT_ONCE):
            inputs, targets = dataset.train.fetch(rows)
            gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs.to(device), targets.to(device))
            squares = [gradient.flatten(1).square().sum(1) for gradient in gradients.values()]
            norms.append(torch.stack(squares).sum(0).sqrt().cpu())
            advance(int(rows[-1]) + 1)
    return torch.cat(norms)
