"""Horovod under horovodrun: each gradient is sent as soon as it is ready; sums, once per global batch."""

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
from bigbatch.engines.communication.process_group import assign_device
from bigbatch.engines.communication.replicas import ReplicatedModelEngine
from bigbatch.errors import Problem


class Config(parts.Config):
    """Horovod's own settings and defaults."""

    # gradients that are ready in the same cycle share a buffer of this size
    fusion_mb: float = Field(128.0, ge=0, le=65_536)
    # how often ranks agree on which gradients are ready on all of them
    cycle_ms: float = Field(1.0, ge=0, le=60_000)
    # names that need one bit each to agree on; the others are sent to rank 0 in full
    cache_capacity: int = Field(1024, ge=0, lt=2**31)
    # the file of rank 0's trace of Horovod, for chrome://tracing
    timeline: Path | None = None
    # A stopped (not killed) rank is only noticed when this runs out.
    timeout_seconds: float = Field(300.0, gt=0, le=1e6)


def check_installed() -> None:
    """Refuse to continue where Horovod is missing or was built for another version of torch."""
    _import_horovod()


def check(config: Config) -> None:
    """Check what can be checked before ranks are started."""
    check_installed()
    if config.timeline and not config.timeline.parent.is_dir():
        raise Problem(f"engine.timeline {config.timeline} is in a folder that does not exist: create it first")


def environment(config: Config) -> dict[str, str]:
    """Return the settings as the environment variables that Horovod reads when it starts."""
    seconds = str(math.ceil(config.timeout_seconds))
    variables = {
        "HOROVOD_FUSION_THRESHOLD": str(round(config.fusion_mb * 2**20)),
        "HOROVOD_CYCLE_TIME": str(config.cycle_ms),
        "HOROVOD_CACHE_CAPACITY": str(config.cache_capacity),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": seconds,  # a rank that does not answer
        "HOROVOD_STALL_CHECK_TIME_SECONDS": seconds,
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": seconds,  # a rank that does not send what others wait for
    }
    if config.timeline:
        variables |= {"HOROVOD_TIMELINE": str(config.timeline), "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    return variables


class Horovod(ReplicatedModelEngine):
    def __init__(self, config: Config) -> None:
        check(config)
        if "HOROVOD_RANK" not in os.environ:
            raise Problem(
                "engine 'horovod' needs ranks that horovodrun started: add --ranks 2, "
                "or start with horovodrun ... python -m bigbatch train"
            )
        self.config = config
        os.environ.update(environment(config))
        self.hvd = _import_horovod()
        self.hvd.init()
        self.rank = self.hvd.rank()
        self.world_size = self.hvd.size()
        self.device = assign_device(self.hvd.local_rank())

    def wrap(self, model: nn.Module) -> nn.Module:
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        # Horovod's own broadcast_parameters fails for channels-last tensors: it supports contiguous ones only
        sent = {name: self.hvd.broadcast_async(t.detach().contiguous(), 0, name) for name, t in tensors.items()}
        for name, handle in sent.items():
            tensors[name].detach().copy_(self.hvd.synchronize(handle))
        return HorovodModule(model, self.hvd)

    def no_sync(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(wrapped, HorovodModule)
        return wrapped.no_sync()

    def sum(self, tensor: Tensor) -> Tensor:
        # a repeated name is found in Horovod's cache; each name has one shape
        name = f"sum.{tensor.dtype}.{'x'.join(map(str, tensor.shape))}"
        summed: Tensor = self.hvd.allreduce_(tensor, name=name, op=self.hvd.Sum)
        return summed

    def broadcast(self, value: Any) -> Any:
        return self.hvd.broadcast_object(
            value, root_rank=0, name="value"
        )  # the default name depends on the value's type

    def stop(self) -> None:
        if self.config.timeline:
            self.hvd.stop_timeline()  # writes what is still buffered
        self.hvd.shutdown()


class HorovodModule(nn.Module):
    """A model whose backward pass sums gradients over ranks, unless its forward pass was under `no_sync`.

    As with DDP, a call of this module makes the next backward pass a collective one, so that probes may
    differentiate the inner model on one rank alone.
    """

    def __init__(self, module: nn.Module, hvd: ModuleType) -> None:
        super().__init__()
        self.module = module
        self.hvd = hvd
        self.sync = True
        self.backward_is_collective = False
        self.pending: dict[str, tuple[int, Tensor]] = {}  # Horovod's handle, and the gradient to replace by the sum
        self.trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
        for name, parameter in self.trainable.items():
            parameter.register_post_accumulate_grad_hook(partial(self._on_gradient_ready, name))

    def forward(self, *inputs: Any) -> Any:
        self.backward_is_collective = self.sync and torch.is_grad_enabled()
        return self.module(*inputs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leave the gradients of backward passes on this rank."""
        before, self.sync = self.sync, False
        try:
            yield
        finally:
            self.sync = before

    def _on_gradient_ready(self, name: str, parameter: Tensor) -> None:
        if not self.backward_is_collective:
            return
        if not self.pending:  # as DDP does: called at the end of the pass, before backward() returns
            torch.autograd.Variable._execution_engine.queue_callback(self._wait_for_sums)
        self._start_all_reduce(name, parameter)

    def _start_all_reduce(self, name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        outgoing = parameter.grad.contiguous()  # a copy only where it is channels-last
        self.pending[name] = self.hvd.allreduce_async_(outgoing, name=name, op=self.hvd.Sum), parameter.grad

    def _wait_for_sums(self) -> None:
        for name, parameter in self.trainable.items():
            if name not in self.pending:  # not used on this rank, but other ranks may wait for it
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self._start_all_reduce(name, parameter)
        for handle, gradient in self.pending.values():
            summed = self.hvd.synchronize(handle)
            if summed is not gradient:
                gradient.copy_(summed)
        self.pending.clear()
        self.backward_is_collective = False


def _import_horovod() -> ModuleType:
    if importlib.util.find_spec("horovod") is None:
        raise Problem("engine 'horovod' needs Horovod, which is not installed: 'make horovod' builds it")
    try:
        with redirect_stdout(io.StringIO()):  # it prints where its library is missing
            import horovod.torch
            import horovod.torch.mpi_lib_v2
    except (ImportError, OSError) as error:
        raise Problem(
            f"engine 'horovod' cannot use the installed Horovod with torch {torch.__version__} "
            f"({str(error).splitlines()[0]}): 'make horovod' builds it for this torch"
        ) from error
    module: ModuleType = horovod.torch
    return module


def start(config: Config) -> Horovod:
    return Horovod(config)
