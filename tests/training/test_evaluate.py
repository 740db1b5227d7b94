"""Evaluation: the definition, sample by sample; the same for any micro-batch; nothing of the model changes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from small import small_run

from bigbatch import engines, parts
from bigbatch.training.assembly import AssembledRun
from bigbatch.training.batches import Split
from bigbatch.training.evaluate import evaluate

NET = {"name": "outside:Net", "dropout": 0.5}  # dropout and BatchNorm: what evaluation mode changes


def assemble(micro_batch: int = 64, **fields) -> AssembledRun:
    assembled = AssembledRun(small_run(**fields), engines.start(parts.configure("engines", "local")))
    assembled.add_optimizer(Split(1, micro_batch))
    return assembled


def test_loss_and_accuracy_are_the_means_over_the_test_set():
    assembled = assemble(model=NET, dtype="float64")
    inputs, targets = assembled.dataset.test.fetch(torch.arange(len(assembled.dataset.test)))
    assembled.model.eval()
    with torch.no_grad():
        logits = assembled.model(inputs.double())
    assembled.model.train()
    measures = evaluate(assembled)
    assert measures["test_loss"] == pytest.approx(float(F.cross_entropy(logits, targets)), abs=1e-12)
    assert measures["test_accuracy"] == float((logits.argmax(1) == targets).double().mean())


@pytest.mark.parametrize("micro_batch", [1, 7, 1000])
def test_the_micro_batch_does_not_matter(micro_batch):
    whole, split = (evaluate(assemble(size, model=NET, dtype="float64")) for size in (180, micro_batch))
    assert split == pytest.approx(whole, abs=1e-12)


def test_mode_and_buffers_are_as_before():
    assembled = assemble(model=NET)
    before = {name: buffer.clone() for name, buffer in assembled.model.named_buffers()}
    evaluate(assembled)
    assert assembled.model.training
    assert all(torch.equal(buffer, before[name]) for name, buffer in assembled.model.named_buffers())
    assert all(parameter.grad is None for parameter in assembled.model.parameters())


def test_a_model_that_knows_nothing_has_the_loss_of_guessing():
    assembled = assemble(model="mlp")
    with torch.no_grad():
        for parameter in assembled.model.parameters():
            parameter.zero_()
    assert evaluate(assembled)["test_loss"] == pytest.approx(math.log(10))


def test_of_many_classes_the_five_most_likely_are_counted_too():
    images = {"name": "synthetic", "sample_shape": (1, 4, 4), "classes": 100, "samples": 40}
    assembled = assemble(dataset=images, model="mlp", global_batch=8)
    inputs, targets = assembled.dataset.test.fetch(torch.arange(40))
    with torch.no_grad():
        ranks = assembled.model(inputs).argsort(dim=1, descending=True)
    among_five = [float(target in order[:5]) for target, order in zip(targets, ranks, strict=True)]
    assert evaluate(assembled)["test_accuracy_top5"] == pytest.approx(sum(among_five) / 40)
