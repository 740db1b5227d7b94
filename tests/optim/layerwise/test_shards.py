"""On two gloo ranks, DTensors, FSDP2 and DDP end where one process ends."""

from __future__ import annotations

import time

import optim_ranks as ranks
import pytest
import torch
import torch.multiprocessing as mp

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    context = mp.spawn(ranks.work, (str(folder),), nprocs=2, join=False)
    try:
        deadline = time.monotonic() + 120
        while not context.join(timeout=5):
            assert time.monotonic() < deadline, "the ranks hang"
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
    return torch.load(folder / "found.pt", weights_only=True)


def agree(weights, expected, dtype):
    for weight, one in zip(weights, expected, strict=True):
        torch.testing.assert_close(weight, one, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize(("name", "path", "dtype"), ranks.cases())
def test_ranks_end_where_one_process_ends(found, name, path, dtype):
    results = found[name, path, str(dtype)]
    expected_model, expected_placed = ranks.alone(name, path, dtype)
    agree(results["placed"], expected_placed, dtype)
    agree(results["fsdp"], expected_model, dtype)
    agree(results["ddp"], expected_model, dtype)


@pytest.mark.parametrize("name", ["LARS", "LAMB", "PercentDelta"])
def test_ranks_are_asked_once_a_step(found, name):
    assert found[name, "default", "torch.float32"]["reductions"] == 1


@pytest.mark.parametrize("name", ranks.KINDS)
def test_distributed_checkpoints_continue_exactly(found, name):
    expected, _ = ranks.alone(name, "default", torch.float64)
    agree(found[name, "resumed"], expected, torch.float64)
