"""The LEGW paper's MNIST LSTM on the real images: one epoch at both ends of its range."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.artifacts.folder import Folder
from bigbatch.training.loop import train


@pytest.mark.realdata
@pytest.mark.parametrize(("global_batch", "loss_at_most"), [(128, 0.5), (8192, 2.1)])
def test_one_epoch_does_not_diverge(tmp_path, global_batch, loss_at_most):
    # the warm-up is shortened, so that at 8192, whose epoch has 8 steps, it ends with it; the loss begins at ln 10
    recipe = parts.find("recipes", "legw_mnist").run()
    steps = -(-60_000 // global_batch)
    run = recipe.with_settings([f"global_batch={global_batch}", "micro_batch=256"])
    first_epoch = run.with_settings([f"steps={steps}", "schedule.warmup_epochs=0.0156"])
    folder = Folder(tmp_path / first_epoch.folder_name)
    summary = train(first_epoch, runs_dir=tmp_path)
    assert folder.status == "done"
    assert summary["diverged_at_step"] is None
    assert [row["train_loss"] for row in folder.metrics() if "lr" in row][-1] < loss_at_most
