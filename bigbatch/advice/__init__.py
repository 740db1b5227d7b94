"""Advice: which batch to use, what it brings and what it costs, measured on the model and machine at hand.

    advice = bigbatch.advise(model, torch.nn.functional.cross_entropy, (inputs, targets), lr=0.1, batch=64)
    advice.batch, advice.interval, advice.grade
    advice.show()

A copy of the model learns for a moment, so that the gradient's noise is that of a training under way; then steps of
several batches are timed. Nothing of the model, its gradients or the random numbers is changed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch.advice.answer import Advice, answered
from bigbatch.advice.learner import Learner, ModuleLearner
from bigbatch.advice.measure import check_batches, measured
from bigbatch.advice.records import records_of
from bigbatch.advice.run_learner import RunLearner
from bigbatch.advice.verify import verified
from bigbatch.engines import env_world_size
from bigbatch.errors import Problem
from bigbatch.probes.measurement.objective import Loss
from bigbatch.probes.measurement.read_only import preserve_model

if TYPE_CHECKING:
    from torch import nn

    from bigbatch.artifacts.folder import Folder
    from bigbatch.run import Run

__all__ = ["Advice", "advise", "advise_run"]

SECONDS = 120.0


def advise(
    model: nn.Module,
    loss: Loss,
    data: Any,
    *,
    optimizer: Any = "momentum",
    lr: float | None = None,
    batch: int = 32,
    warmup_epochs: float = 0.0,
    epochs: float | None = None,
    seed: int = 0,
    seconds: float = SECONDS,
    steps: int | None = None,
    batches: Sequence[int] | None = None,
    verify: bool = False,
    quiet: bool = True,
) -> Advice:
    """The global batch with the best expected time to a loss, for any module. `batch` is the one used now.

    `loss(outputs, targets)` gives the mean over samples or one loss a sample; `data` is (inputs, targets), a Dataset,
    or an iterable of such pairs. `optimizer` is a name of `bigbatch list optim`, a dict of its options, or a class of
    torch's; `lr` the lr tuned for `batch`. `epochs`, the length of the training, turns factors into steps and hours.
    `steps` of the copy's short training, `batches` to time and `seconds` for all of it are chosen where not given.
    """
    if not hasattr(model, "named_parameters"):
        raise Problem(f"{type(model).__name__} is no torch.nn.Module: give the model itself")
    with preserve_model(model):  # for the random numbers: the model itself is copied
        learner = ModuleLearner(
            model,
            loss,
            data,
            optimizer=optimizer,
            lr=lr,
            batch=batch,
            warmup_epochs=warmup_epochs,
            epochs=epochs,
            seed=seed,
        )
        return _advised(learner, None, seconds, steps, batches, verify, quiet)


def advise_run(
    run: Run,
    folder: Folder | None = None,
    *,
    data_dir: Path | None = None,
    seconds: float = SECONDS,
    steps: int | None = None,
    batches: Sequence[int] | None = None,
    verify: bool = False,
    quiet: bool = True,
) -> Advice:
    """The same for a run as its training would begin, or at the newest checkpoint of its folder, which is only read."""
    if env_world_size() > 1:
        raise Problem(f"advise measures in one process, but {env_world_size()} ranks were started: leave torchrun out")
    learner = RunLearner(run, folder, data_dir)
    try:
        return _advised(learner, folder, seconds, steps, batches, verify, quiet)
    finally:
        learner.close()


def _advised(
    learner: Learner,
    folder: Folder | None,
    seconds: float,
    steps: int | None,
    batches: Sequence[int] | None,
    verify: bool,
    quiet: bool,
) -> Advice:
    if not 0 < seconds < math.inf:
        raise Problem(f"{seconds} seconds are no time to measure in: give a finite number above 0, like 60")
    if steps is not None and steps < 1:
        raise Problem(f"{steps} steps train nothing: give 1 or more, or leave it out")
    if batches is not None:
        check_batches(batches, learner.data_cap)
    say = _silent if quiet else _said
    found = measured(learner, seconds=seconds, steps=steps, batches=batches, say=say)
    records = records_of(folder)
    first = answered(learner, found, records)
    if not verify:
        return first
    per_sample = first.step_times["seconds"][-1] / first.step_times["batches"][-1]
    compared = verified(learner, first.batch, first.noise_scale, per_sample, seconds / 2, say)
    return replace(first, verified=compared)


def _silent(text: str) -> None:
    pass


def _said(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
