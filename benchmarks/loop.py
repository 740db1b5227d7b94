"""Our seconds per epoch over a bare hand-written PyTorch loop on the same model and data. The bar is 1.03.

    python benchmarks/loop.py

Both train the same small CNN on the same CIFAR-shaped images at batch 512 with momentum, epoch by epoch in turns in
one process, on one thread. Ours also keeps metrics.jsonl, the epoch's order, schedules and the check for divergence.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
import synthetic

from bigbatch import engines, models, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.run import Run
from bigbatch.training.loop import Training, TrainOptions

ROUNDS = 9
BATCH = 512

RUN = Run(
    name="loop",
    dataset={"name": "synthetic:cifar"},
    model={"name": "cnn", "width": 32},
    global_batch=BATCH,
    micro_batch=BATCH,
    optimizer={"name": "momentum", "lr": 0.01},
    epochs=1000,
)


def bare_epochs() -> Callable[[], None]:
    """What one writes without a library: tensors in memory, a shuffled index, five lines a step."""
    dataset = synthetic.cifar()
    inputs, labels = dataset.train.fetch(torch.arange(len(dataset.train)))
    model = models.build(RUN.model, dataset)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def epoch() -> None:
        for indices in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            logits = model(inputs[indices])
            loss = F.cross_entropy(logits, labels[indices])
            loss.backward()
            optimizer.step()
            loss.item(), (logits.argmax(1) == labels[indices]).sum().item()

    return epoch


def our_epochs(folder: Path) -> Callable[[], None]:
    run_folder = Folder(folder / RUN.folder_name)
    run_folder.create(RUN)
    training = Training(RUN, run_folder, engines.start(parts.configure("engines", "local")), TrainOptions())

    def epoch() -> None:
        ends = False
        while not ends:
            batch, _, _ = training.step(lambda: False, False)
            ends = batch.epoch_ends

    return epoch


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loops = {"bare loop": bare_epochs(), "bigbatch": our_epochs(Path(folder))}
        seconds: dict[str, list[float]] = {name: [] for name in loops}
        for round_number in range(ROUNDS + 1):
            for name, epoch in loops.items():
                started = time.process_time()
                epoch()
                if round_number:  # the first warms up
                    seconds[name].append(time.process_time() - started)
    for name, times in seconds.items():
        print(
            f"{name:10}  CPU seconds an epoch: {min(times):.3f} best, {statistics.median(times):.3f} median, n={ROUNDS}"
        )
    best = min(seconds["bigbatch"]) / min(seconds["bare loop"])
    median = statistics.median(
        ours / bare for ours, bare in zip(seconds["bigbatch"], seconds["bare loop"], strict=True)
    )
    print(f"bigbatch over bare loop: {median:.3f} (median of pairs), {best:.3f} (best of each)")


if __name__ == "__main__":
    main()
