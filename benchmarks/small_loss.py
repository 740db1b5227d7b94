"""What does discarding small-loss samples save? Ways to do it, against learning from all, interleaved in one process.

    python benchmarks/small_loss.py [--batch 128] [--rounds 7] [--threads 1]

Prints one ratio of step times a way (below 1: faster than no selection), for 30 and 50 % discarded, on AlexNet for
CIFAR as in Gao & Zhong 2020 and on the same with BatchNorm. CPU seconds, and the median over rounds of the ratio
within a round, the order turning from round to round: load on the machine cancels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bigbatch import models, parts
from bigbatch.selectors import kept_loss, skip_zero_rows, small_loss

Way = Callable[[nn.Module, Tensor, Tensor, float], None]


def no_selection(model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> None:
    cross_entropy(model(inputs), targets).backward()


def masked(model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> None:
    losses = cross_entropy(model(inputs), targets, reduction="none")
    (losses * small_loss(losses, discard)).mean().backward()


def indexed(model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> None:
    losses = cross_entropy(model(inputs), targets, reduction="none")
    kept_loss(losses, small_loss(losses, discard)).backward()


def indexed_skipping(model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> None:
    losses = cross_entropy(model(inputs), targets, reduction="none")
    with skip_zero_rows():
        kept_loss(losses, small_loss(losses, discard)).backward()


def two_passes(model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> None:
    with torch.no_grad():
        losses = cross_entropy(model(inputs), targets, reduction="none")
    kept = small_loss(losses, discard).nonzero().squeeze(1)
    cross_entropy(model(inputs[kept]), targets[kept]).backward()


WAYS: dict[str, Way] = {
    "no selection": no_selection,
    "one forward, losses masked": masked,
    "one forward, losses indexed": indexed,
    "one forward, skip_zero_rows": indexed_skipping,
    "two forwards, kept run again": two_passes,
}


def network(*, batch_norm: bool) -> nn.Module:
    cifar = SimpleNamespace(sample_shape=(3, 32, 32), classes=tuple("0123456789"), task="classify")
    options = {"name": "alexnet", "variant": "cifar", "batch_norm": batch_norm}
    return models.build(parts.configure("models", options), cifar)


def seconds(way: Way, model: nn.Module, inputs: Tensor, targets: Tensor, discard: float) -> float:
    model.zero_grad()
    start = time.process_time()
    way(model, inputs, targets, discard)
    return time.process_time() - start


def turned(round_number: int) -> list[str]:
    names = list(WAYS)
    first = round_number % len(names)
    return names[first:] + names[:first]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    inputs, targets = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))
    print(f"batch {options.batch}, {options.rounds} rounds, {options.threads} thread(s), torch {torch.__version__}")
    for batch_norm in (False, True):
        model = network(batch_norm=batch_norm)
        for discard in (0.3, 0.5):
            print(f"\n{'with' if batch_norm else 'without'} BatchNorm, {discard:.0%} discarded: time / no selection")
            for way in WAYS.values():
                seconds(way, model, inputs, targets, discard)
            rounds = [
                {name: seconds(WAYS[name], model, inputs, targets, discard) for name in turned(round_number)}
                for round_number in range(options.rounds)
            ]
            for name in WAYS:
                print(f"  {name:30} {median(times[name] / times['no selection'] for times in rounds):.2f}")


if __name__ == "__main__":
    main()
