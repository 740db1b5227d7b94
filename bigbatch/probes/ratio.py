"""‖w‖, ‖∇w‖ and their quotient for each tensor (LARS paper, Table 2): how unevenly layers want to be trained."""

from __future__ import annotations

from typing import Any

import torch

from bigbatch import probes


class Config(probes.Config):
    pass


@torch.no_grad()
def measure(state: probes.State, config: Config) -> dict[str, Any]:
    found = [(name, p.detach(), p.grad) for name, p in state.model.named_parameters() if p.grad is not None]
    weights = torch.stack(torch._foreach_norm([weight for _, weight, _ in found])).tolist()
    gradients = torch.stack(torch._foreach_norm([gradient for _, _, gradient in found])).tolist()
    return {
        name: {"weight": w, "gradient": g, "ratio": w / g if g else None}
        for (name, _, _), w, g in zip(found, weights, gradients, strict=True)
    }
