"""Networks that get into the way of a trace or a measurement: reached as `traced_models:Name`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn

from bigbatch.engines import env_rank


class Failing(nn.Module):
    """Can be built but not called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3072, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("this network is broken")


class Interrupting(nn.Module):
    """On rank 0, presses Ctrl-C in the terminal of whoever started the ranks, and waits to be ended."""

    def __init__(self, pids: str) -> None:
        super().__init__()
        self.layer = nn.Linear(3072, 10)
        self.pids = Path(pids)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (self.pids / str(os.getpid())).touch()
        if env_rank() == 0:
            os.kill(_parent_of(os.getppid()), signal.SIGINT)
            signal.pause()
        return self.layer(x.flatten(1))


class InterruptingLater(nn.Module):
    """Presses Ctrl-C in the terminal of the measurement once more than `after` processes have called it."""

    def __init__(self, pids: str, after: int) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.pids, self.after = Path(pids), after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (self.pids / str(os.getpid())).touch()
        if len(list(self.pids.iterdir())) > self.after:
            os.kill(_ancestor("measure"), signal.SIGINT)
            signal.pause()
        return self.layer(x.flatten(1))


def _ancestor(word: str) -> int:
    """The process above this one that was started with this word."""
    pid = os.getppid()
    while word.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
        pid = _parent_of(pid)
    return pid


def _parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("PPid:")))
