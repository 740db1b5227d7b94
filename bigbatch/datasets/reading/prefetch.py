"""Prefetching in worker processes. Fetching is pure: it does not matter which process fetches what, or when."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from types import TracebackType

import torch  # also teaches multiprocessing to send tensors through shared memory
from torch import Tensor

from bigbatch import engines
from bigbatch.datasets import Samples
from bigbatch.errors import Problem

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class FetchRequest:
    """One call of fetch(), as a value."""

    indices: tuple[int, ...]
    seed: int = 0
    epoch: int | None = None

    @classmethod
    def of(cls, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> FetchRequest:
        """Build the request for the samples in a tensor of indices."""
        return cls(tuple(indices.tolist()), seed, epoch)


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    pipe: connection.Connection
    pieces: dict[int, Batch | Exception] = field(default_factory=dict)  # received but not used yet, by job


class Prefetcher:
    """`get` is `samples.fetch`; requests announced by `prefetch` are fetched ahead, `ahead` of them at a time.

    Sets in memory are fetched in this process. For lazy ones each request is split over the workers, one per core
    of this rank unless their number is given. Workers are started at the first request, and end with `close`, with
    this process, or when it is killed.
    """

    def __init__(self, samples: Samples, workers: int | None = None, *, ahead: int = 2) -> None:
        self.samples = samples
        self.worker_count = (_cores_per_rank() if workers is None else workers) if samples.lazy else 0
        self.ahead = ahead
        self._workers: list[_Worker] = []
        self._announced: deque[FetchRequest] = deque()
        self._jobs: dict[int, FetchRequest] = {}  # by number, in the order they were sent out
        self._next_job = 0

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def prefetch(self, requests: Iterable[FetchRequest]) -> None:
        """Announce all requests to come, in order. They replace those announced before."""
        if self.worker_count == 0:
            return
        self._announced = deque(requests)
        for number, request in list(self._jobs.items()):
            if request in self._announced:
                self._announced.remove(request)
            else:
                del self._jobs[number]  # its pieces are dropped when they arrive
                for worker in self._workers:
                    worker.pieces.pop(number, None)
        self._send_announced()

    def get(self, request: FetchRequest) -> Batch:
        """Return inputs and targets of a request, announced or not."""
        if self.worker_count == 0:
            indices = torch.tensor(request.indices, dtype=torch.int64)
            return self.samples.fetch(indices, seed=request.seed, epoch=request.epoch)
        number = next((number for number, sent in self._jobs.items() if sent == request), None)
        if number is None:
            if request in self._announced:
                self._announced.remove(request)
            number = self._send(request)
        pieces = [self._receive(worker, number) for worker in self._workers_of(request)]
        del self._jobs[number]
        self._send_announced()
        batches: list[Batch] = []
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            batches.append(piece)
        inputs, targets = zip(*batches, strict=True)
        return torch.cat(inputs), torch.cat(targets)

    def close(self) -> None:
        """Kill the workers, whatever they are doing."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()
        self._jobs.clear()
        self._announced.clear()

    def _send_announced(self) -> None:
        while self._announced and len(self._jobs) < self.ahead:
            self._send(self._announced.popleft())

    def _send(self, request: FetchRequest) -> int:
        if not self._workers:
            self._workers = [_start_worker(self.samples) for _ in range(self.worker_count)]
        number, self._next_job = self._next_job, self._next_job + 1
        self._jobs[number] = request
        pieces = torch.tensor(request.indices, dtype=torch.int64).tensor_split(self.worker_count)
        for worker, piece in zip(self._workers_of(request), pieces, strict=False):
            try:
                # numbers go as a list: a tensor would cost a shared memory block
                worker.pipe.send((number, piece.tolist(), request.seed, request.epoch))
            except OSError as error:
                raise self._describe_lost_worker(worker, error) from error
        return number

    def _workers_of(self, request: FetchRequest) -> list[_Worker]:
        """The workers that get a piece of a request; an empty request is one piece, since it has a shape."""
        return self._workers[: max(1, len(request.indices))]

    def _receive(self, worker: _Worker, number: int) -> Batch | Exception:
        """Return a worker's piece of a job. Pieces of other jobs arrive first; those still wanted are kept."""
        while number not in worker.pieces:
            connection.wait([worker.pipe, worker.process.sentinel])
            try:
                if not worker.pipe.poll():
                    raise EOFError
                received, piece = worker.pipe.recv()
            except (EOFError, OSError, RuntimeError) as error:
                raise self._describe_lost_worker(worker, error) from error
            if received in self._jobs:
                worker.pieces[received] = piece
        return worker.pieces.pop(number)

    def _describe_lost_worker(self, worker: _Worker, error: Exception) -> Problem:
        worker.process.join(timeout=5)  # a dead process needs a moment before its exit code is known
        name, pid, code = worker.process.name, worker.process.pid, worker.process.exitcode
        self.close()
        if code is None:
            cause = f"cannot be reached ({error})"
            hint = "often too many files are open: raise ulimit -n or use fewer workers"
        elif code < 0:
            cause = f"was killed by {signal.Signals(-code).name}"
            hint = "often memory or /dev/shm is full: use fewer workers or a smaller micro-batch"
        else:
            cause = f"ended with exit code {code}"
            hint = "its own message is above; a script has to start its work under: if __name__ == '__main__'"
        return Problem(f"data worker {name} (process {pid}) {cause}; {hint}")


def _cores_per_rank() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // engines.env_local_world_size())


def _start_worker(samples: Samples) -> _Worker:
    # forking this process would copy its threads' locks; the fork server has loaded torch once, for all workers
    context: ForkServerContext | SpawnContext
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
    else:
        context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_requests, args=(samples, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return _Worker(process, ours)


def _serve_requests(samples: Samples, pipe: connection.Connection) -> None:
    """Serve fetch requests until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    torch.set_num_threads(1)
    try:
        while True:
            number, indices, seed, epoch = pipe.recv()
            pipe.send((number, _fetch_or_error(samples, torch.tensor(indices, dtype=torch.int64), seed, epoch)))
    except (EOFError, ConnectionError):
        return


def _fetch_or_error(samples: Samples, indices: Tensor, seed: int, epoch: int | None) -> Batch | Exception:
    try:
        return samples.fetch(indices, seed=seed, epoch=epoch)
    except Problem as problem:
        return problem
    except Exception:
        return RuntimeError(f"a data worker failed:\n{traceback.format_exc()}")
