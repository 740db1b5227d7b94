"""What the engines share in which each rank holds the full model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class ReplicatedModelEngine:
    """Base of engines without sharding: one all-reduce for all gradients, checkpoints of the model as it is."""

    device: torch.device
    forward_is_collective = False

    def sum(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def sum_gradients(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        has_gradient = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        # a parameter that no rank has used stays without a gradient
        counts = self.sum(has_gradient.to(self.device)).tolist()
        gradients = []
        for parameter, ranks_with_gradient in zip(parameters, counts, strict=True):
            if ranks_with_gradient:
                if parameter.grad is None:  # this rank had no samples, but must take part in the all-reduce
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        return model, optimizer.state_dict()

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)
