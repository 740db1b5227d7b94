"""The gradient of a global batch is the same number whatever the split: the first promise of the whole project."""

from __future__ import annotations

import json
import subprocess
import sys

import gradients
import pytest
import torch
from gradients import EXACT, ON_TWO_RANKS, UNUSED, assert_close, autograd_oracle, batch_of, gradient, selecting, start

from bigbatch import engines
from bigbatch.losses import per_sample_loss
from bigbatch.run import Run
from bigbatch.training.batches import Split


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    folder = tmp_path_factory.mktemp("ranks")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        gradients.__file__,
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0] == ranks[1], "the ranks disagree"
    return ranks[0]


@pytest.mark.parametrize("count", [512, 509, 3])
@pytest.mark.parametrize("micro", [512, 64, 7])
def test_micro_batches_give_the_gradient_of_the_whole_batch(micro, count):
    local = engines.start(EXACT.engine)
    assert_close(gradient(EXACT, local, Split(1, micro), count), autograd_oracle(EXACT, count))


@pytest.mark.parametrize("case", ["even", "uneven", "one rank without samples", "accumulated"])
def test_two_ranks_give_the_gradient_of_the_whole_batch(case, two_ranks):
    # with DDP's own mean the uneven case is wrong, and that without samples NaN
    assert_close(two_ranks[case], autograd_oracle(EXACT, ON_TWO_RANKS[case][3]))


@pytest.mark.parametrize("case", [case for case in ON_TWO_RANKS if case.startswith("BatchNorm")])
def test_batchnorm_groups_and_statistics_do_not_depend_on_ranks(case, two_ranks):
    run, _, _, count = ON_TWO_RANKS[case]
    alone = gradient(run, engines.start(run.engine), Split(1, 64, True), count)
    assert_close(two_ranks[case], alone)


def test_a_parameter_without_use_has_no_gradient_on_any_number_of_ranks(two_ranks):
    alone = gradient(UNUSED, engines.start(UNUSED.engine), Split(1, 64), 500)
    assert two_ranks["a parameter without use"].keys() == alone.keys() == {"used.weight", "used.bias"}
    assert_close(two_ranks["a parameter without use"], alone)


def test_each_rank_discards_its_own_small_losses(two_ranks):
    """Ranks have samples 0-249 and 250-499 of the batch: 75 of each half go."""
    run, _, _, count = ON_TWO_RANKS["selected by each rank"]
    dataset, global_gradient = start(run, engines.start(run.engine))
    indices = batch_of(run, dataset, Split(1, 10_000), count).indices
    inputs, targets = dataset.train.fetch(indices, seed=run.seed, epoch=0)
    losses = per_sample_loss(global_gradient.model(inputs.double()), targets)
    kept = [half.sort().values[75:] for half in losses.split(250)]
    (torch.cat(kept).sum() * (250 / 175) / 500).backward()
    oracle = {name: p.grad.flatten().tolist() for name, p in global_gradient.model.named_parameters()}
    assert_close(two_ranks["selected by each rank"], oracle)


def selected_oracle(run: Run, count: int, divisor: str) -> dict[str, list[float]]:
    dataset, global_gradient = start(run, engines.start(run.engine))
    indices = batch_of(run, dataset, Split(1, 10_000), count).indices
    inputs, targets = dataset.train.fetch(indices, seed=run.seed, epoch=0)
    losses = per_sample_loss(global_gradient.model(inputs.double()), targets)
    kept = losses.sort().values[int(0.3 * count) :]
    (kept.sum() / (len(kept) if divisor == "kept" else count)).backward()
    return {name: p.grad.flatten().tolist() for name, p in global_gradient.model.named_parameters()}


@pytest.mark.parametrize("divisor", ["kept", "all"])
@pytest.mark.parametrize("passes", ["one", "two"])
def test_small_losses_are_discarded_over_the_whole_global_batch(passes, divisor):
    run = selecting(passes=passes, divisor=divisor)
    found = gradient(run, engines.start(run.engine), Split(1, 64), 500)
    assert_close(found, selected_oracle(run, 500, divisor))


@pytest.mark.parametrize("case", [case for case in ON_TWO_RANKS if case.startswith("selected") and "each" not in case])
def test_small_losses_are_discarded_over_all_ranks(case, two_ranks):
    run, _, _, count = ON_TWO_RANKS[case]
    assert_close(two_ranks[case], selected_oracle(run, count, "kept"))


def test_small_gradient_entries_are_discarded_from_the_sum():
    run = Run(**(EXACT.model_dump() | {"selector": {"name": "small_gradient", "discard": 0.5}}))
    found = gradient(run, engines.start(run.engine), Split(1, 64), 500)
    whole = autograd_oracle(run, 500)
    for name, expected in whole.items():
        oracle = torch.tensor(expected, dtype=torch.float64)
        oracle[oracle.abs().sort(stable=True).indices[: len(oracle) // 2]] = 0
        assert torch.allclose(torch.tensor(found[name], dtype=torch.float64), oracle, atol=1e-10), name
