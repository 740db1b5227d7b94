"""Horovod under horovodrun: each gradient is sent as soon as it is there; summed, once a global batch."""

from __future__ import annotations

import importlib.util
import io
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from bigbatch import parts
from bigbatch.engines._ranks import own_device
from bigbatch.engines._replicas import Replicas
from bigbatch.errors import Problem


class Config(parts.Config):
    """Horovod's own settings and defaults."""

    # gradients that are ready in the same cycle share a buffer of this size
    fusion_mb: float = Field(128.0, ge=0, le=65_536)
    # how often ranks agree on what is ready everywhere
    cycle_ms: float = Field(1.0, ge=0, le=60_000)
    # names on which they agree by one bit each; the others go to rank 0 in full
    cache_capacity: int = Field(1024, ge=0, lt=2**31)
    # a file, where rank 0 writes what Horovod did and when: for chrome://tracing
    timeline: Path | None = None
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: float = Field(300.0, gt=0, le=1e6)


def check_installed() -> None:
    """Refuse to go on where Horovod is missing, or was built for another torch."""
    _imported()


def check(config: Config) -> None:
    """What can be known before ranks are started."""
    check_installed()
    if config.timeline and not config.timeline.parent.is_dir():
        raise Problem(f"engine.timeline {config.timeline} is in a folder that does not exist: make it first")


def environment(config: Config) -> dict[str, str]:
    """The settings in the variables from which Horovod reads them when it starts."""
    seconds = str(math.ceil(config.timeout_seconds))
    variables = {
        "HOROVOD_FUSION_THRESHOLD": str(round(config.fusion_mb * 2**20)),
        "HOROVOD_CYCLE_TIME": str(config.cycle_ms),
        "HOROVOD_CACHE_CAPACITY": str(config.cache_capacity),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": seconds,  # a rank that says nothing at all
        "HOROVOD_STALL_CHECK_TIME_SECONDS": seconds,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": seconds,  # one that is alive, but does not send what others wait for
    }
    if config.timeline:
        variables |= {"HOROVOD_TIMELINE": str(config.timeline), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    return variables


class Horovod(Replicas):
    def __init__(self, config: Config) -> None:
        check(config)
        if "HOROVOD_RANK" not in os.environ:
            raise Problem(
                "engine 'horovod' needs ranks that horovodrun started: add --ranks 2, "
                "or start with horovodrun ... python -m bigbatch train"
            )
        self.config = config
        os.environ.update(environment(config))
        self.hvd = _imported()
        self.hvd.init()
        self.rank = self.hvd.rank()
        self.world_size = self.hvd.size()
        self.device = own_device(self.hvd.local_rank())

    def wrap(self, model: nn.Module) -> nn.Module:
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        # Horovod takes contiguous tensors only, so that its own broadcast_parameters fails where one is channels-last
        sent = {name: self.hvd.broadcast_async(t.detach().contiguous(), 0, name) for name, t in tensors.items()}
        for name, handle in sent.items():
            tensors[name].detach().copy_(self.hvd.synchronize(handle))
        return Sending(model, self.hvd)

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, Sending)
        return wrapped.keeping_quiet()

    def sum(self, tensor: Tensor) -> Tensor:
        # by a name that comes again, so that Horovod's cache knows it; a name has one shape
        name = f"sum.{tensor.dtype}.{'x'.join(map(str, tensor.shape))}"
        return self.hvd.allreduce_(tensor, name=name, op=self.hvd.Sum)

    def broadcast(self, value: Any) -> Any:
        return self.hvd.broadcast_object(value, root_rank=0, name="value")  # its own names differ by the value's type

    def stop(self) -> None:
        if self.config.timeline:
            self.hvd.stop_timeline()  # or what is not yet written is lost
        self.hvd.shutdown()


class Sending(nn.Module):
    """A model whose backward pass leaves the sum over ranks in `.grad`, if its forward was not `keeping_quiet`.

    As with DDP it is a call of this module that makes the next backward pass one of all ranks, so that probes may
    differentiate the model inside by themselves.
    """

    def __init__(self, module: nn.Module, hvd: ModuleType) -> None:
        super().__init__()
        self.module = module
        self.hvd = hvd
        self.quiet = False
        self.awaited = False  # a backward pass of all ranks
        self.sent: dict[str, tuple[int, Tensor]] = {}  # Horovod's handle, and where the sum is to be
        self.named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        for name, parameter in self.named.items():
            parameter.register_post_accumulate_grad_hook(partial(self._ready, name))

    def forward(self, *inputs: Any) -> Any:
        self.awaited = not self.quiet and torch.is_grad_enabled()
        return self.module(*inputs)

    @contextmanager
    def keeping_quiet(self) -> Iterator[None]:
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    def _ready(self, name: str, parameter: Tensor) -> None:
        if not self.awaited:
            return
        if not self.sent:  # as DDP does it: called when the pass is over, before backward() returns
            torch.autograd.Variable._execution_engine.queue_callback(self._complete)
        self._send(name, parameter)

    def _send(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        outgoing = parameter.grad.contiguous()  # the gradient itself, but where it is channels-last
        self.sent[name] = self.hvd.allreduce_async_(outgoing, name=name, op=self.hvd.Sum), parameter.grad

    def _complete(self) -> None:
        for name, parameter in self.named.items():
            if name not in self.sent:  # not used on this rank, but others may wait for its word
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._send(name, parameter)
        for handle, gradient in self.sent.values():
            summed = self.hvd.synchronize(handle)
            if summed is not gradient:
                gradient.copy_(summed)
        self.sent.clear()
        self.awaited = False


def _imported() -> ModuleType:
    if importlib.util.find_spec("horovod") is None:
        raise Problem("engine 'horovod' needs Horovod, which is not installed here: 'make horovod' builds it")
    try:
        with redirect_stdout(io.StringIO()):  # where it would only print that its library is missing
            import horovod.torch
            import horovod.torch.mpi_lib_v2
    except (ImportError, OSError) as error:
        raise Problem(
            f"engine 'horovod' cannot use the Horovod that is here with torch {torch.__version__} "
            f"({str(error).splitlines()[0]}): 'make horovod' builds it for this torch"
        ) from error
    return horovod.torch


def start(config: Config) -> Horovod:
    return Horovod(config)
