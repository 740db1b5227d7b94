"""Take single training steps of a run on one rank, without what the training loop does around them."""
# annotations are not postponed here: torch reads those of a communication hook

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket  # torch.distributed does not export it to type checkers

from bigbatch.engines import Engine, ddp
from bigbatch.engines.local import Local
from bigbatch.position import Position
from bigbatch.run import Run
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.gradient import BatchSums
from bigbatch.training.step import take_step


class WithoutCommunication(Local):
    """One rank of several that does all the computation of a rank and sends nothing: sums stay its own."""

    def __init__(self, world_size: int, rank: int = 0) -> None:
        super().__init__()
        self.rank, self.world_size = rank, world_size


class DDPWithoutCommunication(WithoutCommunication):
    """DDP's hooks and buckets: they are filled but not sent."""

    def __init__(self, world_size: int, rank: int, config: ddp.Config) -> None:
        super().__init__(world_size, rank)
        self.config = config

    def wrap(self, model: nn.Module) -> nn.Module:
        wrapped = ddp.wrap_in_ddp(model, self.config, self.device)
        wrapped.register_comm_hook(None, _keep_own_bucket)
        return wrapped


def _keep_own_bucket(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Stepper(AssembledRun):
    """A run assembled on one rank, which takes single steps."""

    def __init__(self, run: Run, engine: Engine) -> None:
        super().__init__(run, engine)
        self.global_batch = self.first_global_batch()
        self.add_optimizer(Split(engine.world_size, self.global_batch // engine.world_size))

    def step(self, before_update: Callable[[], None] = lambda: None) -> None:
        """Take one step; `before_update` is called when the gradient of the global batch is complete."""

        def around_update(_: BatchSums) -> AbstractContextManager[None]:
            before_update()
            return nullcontext()

        batch = self.batches.next(self.progress, self.global_batch, self.split)
        take_step(self, batch, Position(0.0, 1.0, self.global_batch), around_update)
        if self.engine.device.type == "cuda":
            torch.cuda.synchronize(self.engine.device)


def barrier(engine: Engine) -> None:
    """Wait for all ranks."""
    engine.sum(torch.zeros(1, device=engine.device))
