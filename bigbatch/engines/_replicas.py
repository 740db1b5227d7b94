"""What engines share whose ranks each hold the whole model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Replicas:
    device: torch.device
    forward_is_collective = False

    def sum(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def sum_gradients(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        known = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        somewhere = self.sum(known.to(self.device)).tolist()  # a tensor that no rank has used stays without a gradient
        gradients = []
        for parameter, ranks in zip(parameters, somewhere, strict=True):
            if ranks:
                if parameter.grad is None:  # this rank had no samples, but its word is awaited
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        return model, optimizer.state_dict()

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)
