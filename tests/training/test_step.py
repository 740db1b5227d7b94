"""What a step does besides the optimizer: clipping, sharpness-aware gradients, the average of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small import final_weights, same_bits, small_run

from bigbatch import engines
from bigbatch.artifacts.checkpoint import load
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import read_rows
from bigbatch.errors import Problem
from bigbatch.losses import per_sample_loss
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.loop import train
from bigbatch.training.step import take_step


def assemble(**fields) -> AssembledRun:
    run = small_run(dtype="float64", **fields)
    assembled = AssembledRun(run, engines.start(run.engine))
    assembled.add_optimizer(Split(1, 64))
    return assembled


def step_once(assembled: AssembledRun) -> None:
    batch = assembled.batches.next(assembled.progress, 256, assembled.split)
    take_step(assembled, batch, assembled.counter.position(assembled.progress, 256, batch.count))


def batch_gradient(assembled: AssembledRun, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """By autograd on the whole first batch."""
    names = [name for name, _ in assembled.model.named_parameters()]
    leaves = [weight.clone().requires_grad_() for weight in weights]
    indices = assembled.batches.next(assembled.progress, 256, assembled.split).indices
    inputs, targets = assembled.dataset.train.fetch(indices)
    logits = torch.func.functional_call(assembled.model, dict(zip(names, leaves, strict=True)), (inputs.double(),))
    return list(torch.autograd.grad(per_sample_loss(logits, targets).mean(), leaves))


def weights_of(assembled: AssembledRun) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in assembled.model.parameters()]


def test_clipping_scales_the_whole_gradient_to_the_norm():
    assembled = assemble(clip_norm=0.01, optimizer={"name": "sgd", "lr": 1.0})
    before = weights_of(assembled)
    gradient = batch_gradient(assembled, before)
    step_once(assembled)
    moved = [old - new for old, new in zip(before, weights_of(assembled), strict=True)]
    norm = torch.cat([tensor.flatten() for tensor in moved]).norm().item()
    assert norm == pytest.approx(0.01, rel=1e-4)  # torch adds 1e-6 to the norm
    direction = torch.nn.functional.cosine_similarity(
        torch.cat([tensor.flatten() for tensor in moved]), torch.cat([tensor.flatten() for tensor in gradient]), dim=0
    )
    assert direction.item() == pytest.approx(1, abs=1e-12)


def test_sam_steps_with_the_gradient_at_the_worst_point_nearby():
    assembled = assemble(sam_radius=0.5, optimizer={"name": "sgd", "lr": 0.1})
    before = weights_of(assembled)
    gradient = batch_gradient(assembled, before)
    norm = torch.cat([tensor.flatten() for tensor in gradient]).norm()
    worst = [weight + 0.5 * grad / norm for weight, grad in zip(before, gradient, strict=True)]
    expected = [
        weight - 0.1 * grad for weight, grad in zip(before, batch_gradient(assembled, worst), strict=True)
    ]  # from w, not from w + ε
    step_once(assembled)
    for found, wanted in zip(weights_of(assembled), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_sam_counts_batchnorm_statistics_once():
    cnn = {"name": "cnn", "batch_norm": True}
    plain, sam = (assemble(model=cnn, batchnorm_group=64, **fields) for fields in ({}, {"sam_radius": 0.05}))
    at_start = [buffer.clone() for buffer in plain.model.buffers()]
    for assembled in (plain, sam):
        step_once(assembled)
    assert not any(torch.equal(one, start) for one, start in zip(plain.model.buffers(), at_start, strict=True))
    for one, other in zip(plain.model.buffers(), sam.model.buffers(), strict=True):
        assert torch.equal(one, other)


def test_sam_leaves_the_hidden_state_of_one_pass(tmp_path):
    text = " ".join(f"word{number % 7}" for number in range(400))
    for part in ("train", "valid", "test"):
        (tmp_path / "ptb").mkdir(exist_ok=True)
        (tmp_path / "ptb" / f"ptb.{part}.txt").write_text(text)
    fields = {
        "dataset": {"name": "ptb", "official": False, "steps": 5},
        "model": {"name": "lstm_words", "hidden": 8, "embedding": 8},
        "global_batch": 4,
        "micro_batch": 4,
    }
    states = []
    for extra in ({}, {"sam_radius": 0.05}):
        run = small_run(dtype="float64", **fields, **extra)
        assembled = AssembledRun(run, engines.start(run.engine), data_dir=tmp_path)
        assembled.add_optimizer(Split(1, 4))
        batch = assembled.batches.next(assembled.progress, 4, assembled.split)
        take_step(assembled, batch, assembled.counter.position(assembled.progress, 4, batch.count))
        states.append(assembled.gradient.forward.hidden_state.gather(assembled.engine))
    for one, other in zip(*states, strict=True):
        assert torch.equal(one, other)


def test_the_average_is_a_moving_one_that_begins_at_the_first_weights():
    assembled = assemble(ema_decay=0.75, optimizer={"name": "sgd", "lr": 0.1})
    step_once(assembled)
    first = weights_of(assembled)
    step_once(assembled)
    second = weights_of(assembled)
    for average, one, two in zip(assembled.average.module.parameters(), first, second, strict=True):
        torch.testing.assert_close(average, 0.75 * one + 0.25 * two, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("micro_batch", [256, 100, 7])
def test_micro_batches_change_nothing(micro_batch):
    smoothed = {"name": "cross_entropy", "label_smoothing": 0.1}
    fields = {"ema_decay": 0.75, "sam_radius": 0.05, "clip_norm": 0.1, "loss": smoothed}
    whole, split = assemble(**fields), assemble(**fields)
    split.split = Split(1, micro_batch)
    for assembled in (whole, split):
        step_once(assembled)
        step_once(assembled)
    assert whole.average is not None
    assert split.average is not None
    for model, other in ((whole.model, split.model), (whole.average.module, split.average.module)):
        for one, two in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-14)


@pytest.mark.parametrize("fields", [{"ema_decay": 0.9}, {"sam_radius": 0.05}, {"clip_norm": 0.1}])
def test_a_resume_changes_nothing(tmp_path, fields):
    whole = small_run(**fields, epochs=2)
    train(whole, runs_dir=tmp_path / "whole")
    half = Folder(tmp_path / "parts" / whole.folder_name)
    resume_after_first_epoch(whole, half)
    assert same_bits(final_weights(tmp_path / "whole" / whole.folder_name), final_weights(half))
    states = [
        load(folder / "checkpoint", whole.hash)[1] for folder in (tmp_path / "whole" / whole.folder_name, half.path)
    ]
    if "ema_decay" in fields:
        assert same_bits(states[0]["average"], states[1]["average"])


def resume_after_first_epoch(run, folder: Folder) -> None:
    """Train, damage the checkpoint after the first epoch's, and train on from that one."""
    train(run, runs_dir=folder.path.parent)
    newest = max(folder.checkpoints.glob("step-*"))
    (newest / "model.safetensors").write_bytes(b"damaged")
    (folder.path / "summary.json").unlink()
    folder.status = "running"
    train(run, runs_dir=folder.path.parent)


def test_the_average_is_evaluated_beside_the_weights(tmp_path):
    summary = train(small_run(ema_decay=0.5, epochs=3), runs_dir=tmp_path)
    assert summary["test_accuracy_ema"] != summary["test_accuracy"]
    assert summary["test_accuracy_ema"] > 0.5


def test_evaluations_within_an_epoch(tmp_path):
    run = small_run(evaluations_per_epoch=3, epochs=2)  # 1437 samples: 6 steps of an epoch
    train(run, runs_dir=tmp_path)
    rows = [row for row in read_rows(Path(tmp_path / run.folder_name / "metrics.jsonl")) if "test_loss" in row]
    assert [row["step"] for row in rows] == [2, 4, 6, 8, 10, 12]
    plain = small_run(epochs=2)
    train(plain, runs_dir=tmp_path)
    assert same_bits(final_weights(tmp_path / run.folder_name), final_weights(tmp_path / plain.folder_name))


def test_label_smoothing_is_trained_with_but_not_tested_with(tmp_path):
    summary = train(small_run(loss={"name": "cross_entropy", "label_smoothing": 0.5}, epochs=6), runs_dir=tmp_path)
    assert summary.train_loss > summary.test_loss  # its floor is the entropy of the smoothed labels, above 1


def test_an_optimizer_that_differentiates_by_itself_is_refused_in_words():
    with pytest.raises(Problem, match="neither sam_radius nor clip_norm"):
        assemble(sam_radius=0.1, optimizer={"name": "curvature", "hessian": "hutchinson", "lr": 0.5})
