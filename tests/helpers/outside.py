"""Parts as a user would write them, outside of bigbatch: reached by tests as `outside:Name`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bigbatch.engines import env_rank
from bigbatch.recipes import digits
from bigbatch.run import Run


class Net(nn.Module):
    """Dropout and BatchNorm: what an exact resume most easily gets wrong."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class WithUnused(nn.Module):
    """One layer does the work, the other is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x.flatten(1))


class DyingSGD(torch.optim.SGD):
    """Kills its own process with SIGKILL at a step, once: `marker` remembers that it did."""

    def __init__(
        self, params: Any, lr: float, marker: str, at_step: int, rank: int = 0, signal_number: int = 9
    ) -> None:
        super().__init__(params, lr=lr, momentum=0.9)
        self.marker, self.at_step, self.signal_number, self.taken = Path(marker), at_step, signal_number, 0
        self.here = env_rank() == rank

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        if self.here and self.taken == self.at_step and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), self.signal_number)
            signal.sigtimedwait([], 0)  # a pending signal is delivered before the step goes on
        return super().step(closure)


class ExplodingSGD(torch.optim.SGD):
    """Turns all weights into NaN at its third step."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.taken = 0

    def step(self, closure: Any = None) -> Any:
        self.taken += 1
        if self.taken == 3:
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.fill_(float("nan"))
            return None
        return super().step(closure)


def recipe() -> Run:
    return digits.run().with_settings(["name=mine", "epochs=1"])


def adamw(params: Any, lr: float) -> torch.optim.Optimizer:
    """An optimizer may come from a function too."""
    return torch.optim.AdamW(params, lr=lr)
