"""A bare PyTorch loop at a large batch: LARS, a LEGW schedule, and no learning from the 30 % smallest losses.

    python examples/bare_loop.py

Nothing of bigbatch but an optimizer, a schedule and a selector; each could be taken alone. Handwritten digits of
8 x 8 pixels (scikit-learn's, nothing is downloaded), a few seconds on a CPU. The lr was tuned at a batch of 32.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from bigbatch.optim import LARS
from bigbatch.schedules import Baseline, Schedule, as_torch, legw, polynomial
from bigbatch.selectors import kept_loss, skip_zero_rows, small_loss

GLOBAL_BATCH = 256
BASELINE = Baseline(lr=0.2, global_batch=32, warmup_epochs=0.25)


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    return (inputs[:1500], targets[:1500]), (inputs[1500:], targets[1500:])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def main(epochs: int = 20) -> float:
    """Train and return the test accuracy."""
    torch.manual_seed(0)
    (inputs, targets), (test_inputs, test_targets) = digits()
    model = network()
    optimizer = LARS(model.parameters(), lr=BASELINE.lr, trust_coefficient=0.1, weight_decay=1e-4)
    scheduler = as_torch(
        Schedule(legw, BASELINE, polynomial()),
        optimizer,
        total_epochs=epochs,
        samples_per_epoch=len(inputs),
        global_batch=GLOBAL_BATCH,
    )
    for epoch in range(epochs):
        for batch in torch.randperm(len(inputs)).split(GLOBAL_BATCH):
            optimizer.zero_grad()
            losses = cross_entropy(model(inputs[batch]), targets[batch], reduction="none")
            with skip_zero_rows():  # the discarded samples' backward pass is not run
                kept_loss(losses, small_loss(losses, discard=0.3)).backward()
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch + 1:2}  learning rate {scheduler.get_last_lr()[0]:6.3f}  loss {losses.mean().item():.3f}")
    with torch.no_grad():
        accuracy = (model(test_inputs).argmax(1) == test_targets).float().mean().item()
    print(f"test accuracy {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
