"""The same training as a Lightning module: LARS, a LEGW schedule, and no learning from the 30 % smallest losses.

    pip install lightning
    python examples/lightning_module.py

The scheduler is stepped once a batch (`"interval": "step"`), and Lightning saves and restores it with the rest.
"""

from __future__ import annotations

import lightning
import torch
from bare_loop import BASELINE, GLOBAL_BATCH, digits, network
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from bigbatch.optim import LARS
from bigbatch.schedules import Schedule, as_torch, legw, polynomial
from bigbatch.selectors import kept_loss, skip_zero_rows, small_loss


class LargeBatch(lightning.LightningModule):
    """Any network, at any global batch."""

    def __init__(self, model: torch.nn.Module, epochs: int, samples: int, global_batch: int) -> None:
        super().__init__()
        self.model = model
        self.plan = {"total_epochs": epochs, "samples_per_epoch": samples, "global_batch": global_batch}

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        inputs, targets = batch
        losses = cross_entropy(self.model(inputs), targets, reduction="none")
        self.log("train_loss", losses.mean())
        return kept_loss(losses, small_loss(losses, discard=0.3))

    def backward(self, loss: Tensor) -> None:
        with skip_zero_rows():
            loss.backward()

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        inputs, targets = batch
        self.log("test_accuracy", (self.model(inputs).argmax(1) == targets).float().mean())

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = LARS(self.parameters(), lr=BASELINE.lr, trust_coefficient=0.1, weight_decay=1e-4)
        scheduler = as_torch(Schedule(legw, BASELINE, polynomial()), optimizer, **self.plan)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main(epochs: int = 20, **trainer_options: object) -> float:
    """Train and return the test accuracy."""
    lightning.seed_everything(0)
    train, test = (TensorDataset(*split) for split in digits())
    module = LargeBatch(network(), epochs, len(train), GLOBAL_BATCH)
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", log_every_n_steps=1, **trainer_options)
    trainer.fit(module, DataLoader(train, batch_size=GLOBAL_BATCH, shuffle=True))
    tested = trainer.test(module, DataLoader(test, batch_size=len(test)))
    return tested[0]["test_accuracy"]


if __name__ == "__main__":
    main()
