"""Gao & Zhong's setting for real: AlexNet on CIFAR-10, before the first step."""

from __future__ import annotations

import pytest

from bigbatch.probing import probe_run
from bigbatch.run import Run


@pytest.mark.realdata
def test_mean_gradient_of_alexnet_follows_the_folded_normal(tmp_path):
    run = Run(
        name="gao",
        dataset="cifar10",
        model={"name": "alexnet", "variant": "cifar"},
        global_batch=128,
        optimizer={"name": "sgd", "lr": 0.05},
        epochs=1,
    )
    path = tmp_path / "run.json"
    path.write_text(run.to_json())
    options = ["gradient.population=2048", "gradient.discard_batch=512", "gradient.discards=[0.3]"]
    found = probe_run(str(path), names=["gradient"], options=options)["probes"]["gradient"]
    for row in found["by_batch"]:
        # gradients of few samples are no Gaussian: ReLU and dropout make most of them zero
        assert row["measured"] == pytest.approx(row["folded"], rel=0.04 if row["batch"] >= 128 else 0.12)
    assert found["exponent"] > -0.5  # the mean gradient is not zero, as the paper's law has it
    whole, less = found["by_discard"]
    assert less["kept"] > whole["kept"]  # Fig. 9
    assert less["kept"] == pytest.approx(less["all"] / 0.7, rel=0.01)
