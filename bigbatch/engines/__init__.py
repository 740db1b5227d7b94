"""Engines: who adds gradients up. A part offers `start(config) -> Engine`."""

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

RESTARTS = "BIGBATCH_RESTARTS"  # set by our launcher, as horovodrun does not count


class Engine(Protocol):
    """One rank's view of all ranks."""

    rank: int
    world_size: int
    device: torch.device
    forward_is_collective: (
        bool  # a call of the model is a meeting of all ranks: each has to call it as often as the others
    )

    def wrap(self, model: nn.Module) -> nn.Module:
        """The module to call in training: its backward sums gradients over ranks unless `no_sync`.

        It may put other parameters into the model, so that an optimizer is made after it.
        """

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Within it a backward adds to this rank's own gradients only."""

    def sum_gradients(self, model: nn.Module) -> None:
        """The sum over ranks for gradients that were gathered while `no_sync` throughout."""

    def full_state(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, dict[str, Any]]:
        """The whole model and its optimizer's whole state, for a checkpoint. All ranks take part; rank 0 has it."""

    def restore(self, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Give an optimizer the state that `full_state` gave."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank (numbers, strings, lists and dicts of them)."""

    def stop(self) -> None:
        """Leave the group."""


def env_world_size() -> int:
    """How many ranks torchrun, horovodrun (or another launcher) started; 1 in an ordinary process."""
    return _from_launcher("WORLD_SIZE", "HOROVOD_SIZE", default=1)


def env_rank() -> int:
    """Which of them this process is."""
    return _from_launcher("RANK", "HOROVOD_RANK", default=0)


def env_local_world_size() -> int:
    """How many of them share this machine."""
    return _from_launcher("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE", default=1)


def restarted() -> bool:
    """Whether this rank was started again after one had died."""
    return _from_launcher("TORCHELASTIC_RESTART_COUNT", RESTARTS, default=0) > 0


def _from_launcher(torchruns: str, horovodruns: str, default: int) -> int:
    return int(os.environ.get(torchruns) or os.environ.get(horovodruns) or default)


def fit_run(run: Run, ranks: int = 1) -> Run:
    """The run with an engine for the ranks that a launcher started, or for `ranks` that are still to be started."""
    launched = env_world_size()
    return run.on_ranks(launched if launched > 1 else ranks, "horovod" if "HOROVOD_RANK" in os.environ else "ddp")


def start(config: parts.Config) -> Engine:
    """The engine that a run names."""
    if config.name == "local" and env_world_size() > 1:
        raise Problem(f"engine 'local' is one process but {env_world_size()} ranks were started: use --set engine=ddp")
    return parts.find("engines", config.name).start(config)
