"""A model's loss and accuracy on the test set, in evaluation mode, divided over ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from bigbatch import optim
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.engines import Engine
from bigbatch.losses import count_correct, per_sample_loss
from bigbatch.models import move_inputs
from bigbatch.position import Progress
from bigbatch.probes.measurement.read_only import preserve_tensors
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split

_TEXT_STREAMS = 20  # many at once for speed; each token is counted once, and few lose their context
_STATISTICS_SAMPLES = 8192  # to take BatchNorm's statistics of
_CLASSES_FOR_TOP5 = 100


@torch.no_grad()
def evaluate(assembled: AssembledRun, average: nn.Module | None = None) -> dict[str, float]:
    """Return `test_loss` and `test_accuracy`, or for text `test_perplexity`, of the run's model or its average.

    Of 100 classes and more, `test_accuracy_top5` counts samples whose class is among the five most likely.
    """
    model = average or assembled.model
    dataset, engine = assembled.dataset, assembled.engine
    micro_batch = 2 * assembled.split.micro_batch  # without a graph there is room for more
    was_training = model.training
    evaluate_task = _evaluate_text if dataset.task == "language" else _evaluate_classes
    with nullcontext() if average else evaluation_weights(assembled), assembled.gradient.forward.autocast():
        model.eval()
        result = evaluate_task(model, dataset, engine, micro_batch)
        model.train(was_training)
    return result


@contextmanager
def evaluation_weights(assembled: AssembledRun) -> Iterator[None]:
    """Within it the model has the weights that its optimizer evaluates at, with BatchNorm's statistics taken there.

    Afterwards the model is as before, bit for bit.
    """
    optimizer, model = assembled.optimizer, assembled.model
    if not isinstance(optimizer, optim.HasModes):
        yield
        return
    with preserve_tensors([*model.parameters(), *model.buffers()]):
        optimizer.eval()
        try:
            if assembled.gradient.statistics.layers:
                with assembled.gradient.forward.autocast():
                    update_bn(_fetch_training_inputs(assembled), model)
            yield
        finally:
            optimizer.train()


def _fetch_training_inputs(assembled: AssembledRun) -> Iterator[Tensor]:
    """Micro-batches of the first samples of the first epoch, the same on every rank."""
    batches = assembled.batches
    count = min(_STATISTICS_SAMPLES, batches.epoch_samples(1))
    indices = batches.next(Progress(), count, assembled.split).indices
    for part in indices.tensor_split(-(-count // assembled.split.micro_batch)):
        inputs, _ = batches.dataset.train.fetch(part, seed=assembled.run.seed, epoch=0)
        yield move_inputs(inputs, assembled.model, assembled.engine.device)


def _evaluate_classes(model: nn.Module, dataset: Dataset, engine: Engine, micro_batch: int) -> dict[str, float]:
    with_top5 = len(dataset.classes) >= _CLASSES_FOR_TOP5
    sums = torch.zeros(2 + with_top5, dtype=torch.float64, device=engine.device)
    count = len(dataset.test)
    by_rank = Split(engine.world_size, micro_batch).slices(count)
    own = by_rank[engine.rank]
    requests = [FetchRequest.of(torch.arange(part.start, part.stop)) for part in own]
    with Prefetcher(dataset.test, dataset.workers) as prefetcher:
        prefetcher.prefetch(requests)
        for request in requests:
            inputs, targets = prefetcher.get(request)
            targets = targets.to(engine.device)
            logits = model(move_inputs(inputs, model, engine.device))
            found = [per_sample_loss(logits, targets).sum(), count_correct(logits, targets)]
            if with_top5:
                found.append((logits.topk(5).indices == targets[:, None]).sum())
            sums += torch.stack(found)
    if engine.forward_is_collective:
        inputs, _ = dataset.test.fetch(torch.arange(2))
        for _ in range(max(len(others) for others in by_rank) - len(own)):
            model(move_inputs(inputs, model, engine.device))
    means = (engine.sum(sums) / count).tolist()
    return dict(zip(("test_loss", "test_accuracy", "test_accuracy_top5"), means, strict=False))


def _evaluate_text(model: nn.Module, dataset: Dataset, engine: Engine, micro_batch: int) -> dict[str, float]:
    sums = torch.zeros(2, dtype=torch.float64, device=engine.device)
    streams = max(_TEXT_STREAMS, engine.world_size)
    mine = Split(engine.world_size, streams).slices(streams)[engine.rank][0]
    state = None
    for inputs, targets, counted in dataset.test.evaluation_windows(streams):  # type: ignore[attr-defined]
        rows = slice(mine.start, mine.stop)
        logits, state = model(inputs[rows].to(engine.device), state)
        token_losses = F.cross_entropy(
            logits.float().flatten(0, 1), targets[rows].to(engine.device).flatten(), reduction="none"
        )
        mask = counted[rows].to(engine.device).flatten()
        sums += torch.stack([(token_losses * mask).sum(dtype=torch.float64), mask.sum(dtype=torch.float64)])
    loss_sum, tokens = engine.sum(sums).tolist()
    return {"test_loss": loss_sum / tokens, "test_perplexity": math.exp(min(loss_sum / tokens, 700.0))}
