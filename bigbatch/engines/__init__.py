"""Engines: how gradients are summed over ranks. A part offers `start(config) -> Engine`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.run import Run

RESTARTS = "BIGBATCH_RESTARTS"  # set by our launcher, because horovodrun does not count restarts


class Engine(Protocol):
    """One rank's view of all ranks."""

    rank: int
    world_size: int
    device: torch.device
    forward_is_collective: bool  # every rank must call the model equally often

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training, whose backward pass sums gradients over ranks unless under `no_sync`.

        It may replace the model's parameters, so the optimizer is built afterwards.
        """

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which a backward pass adds to this rank's own gradients only."""

    def sum_gradients(self, model: nn.Module) -> None:
        """Sum over ranks the gradients of a step that was under `no_sync` throughout."""

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        """Return the full model and its optimizer's full state for a checkpoint. Collective; rank 0 gets them."""

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load the optimizer's state that `full_state` returned."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over ranks, in place, and return it."""

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value on every rank (numbers, strings, lists and dicts of them)."""

    def stop(self) -> None:
        """Leave the process group."""


def env_world_size() -> int:
    """Return how many ranks torchrun, horovodrun or another launcher started; 1 in an ordinary process."""
    return _launcher_number("WORLD_SIZE", "HOROVOD_SIZE", default=1)


def env_rank() -> int:
    """Return the rank of this process."""
    return _launcher_number("RANK", "HOROVOD_RANK", default=0)


def env_local_world_size() -> int:
    """Return how many ranks run on this machine."""
    return _launcher_number("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE", default=1)


def was_restarted() -> bool:
    """Whether this rank was restarted after a rank had died."""
    return _launcher_number("TORCHELASTIC_RESTART_COUNT", RESTARTS, default=0) > 0


def _launcher_number(torchrun_name: str, horovodrun_name: str, default: int) -> int:
    return int(os.environ.get(torchrun_name) or os.environ.get(horovodrun_name) or default)


def fit_run_to_ranks(run: Run, ranks: int = 1) -> Run:
    """Return the run with an engine for the ranks that a launcher started, or for `ranks` yet to be started."""
    launched = env_world_size()
    return run.on_ranks(launched if launched > 1 else ranks, "horovod" if "HOROVOD_RANK" in os.environ else "ddp")


def start(config: parts.Config) -> Engine:
    """Start the engine that a config names."""
    if config.name == "local" and env_world_size() > 1:
        raise Problem(
            f"engine 'local' has one process, but {env_world_size()} ranks were started: use --set engine=ddp"
        )
    engine: Engine = parts.find("engines", config.name).start(config)
    return engine
