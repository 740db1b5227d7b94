"""Advice: which batch to use, what it brings and what it costs, measured on the given model and machine.

    advice = bigbatch.advise(model, torch.nn.functional.cross_entropy, (inputs, targets), lr=0.1, batch=64)
    advice.batch, advice.interval, advice.grade
    advice.show()

A copy of the model is trained for a moment, so that the gradient's noise is that of a training in progress; then steps
of several batches are timed. The model, its gradients and the random streams are not changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigbatch.advice.branching import branch, verify_batch
from bigbatch.advice.history import read_history
from bigbatch.advice.learner import Learner, ModuleLearner, ModuleTraining, RunLearner
from bigbatch.advice.measurement import AdviceOptions, measure_learner
from bigbatch.advice.recommendation import Advice, recommend
from bigbatch.engines import env_world_size
from bigbatch.errors import Problem
from bigbatch.probes.measurement.objective import Loss
from bigbatch.probes.measurement.read_only import preserve_model

if TYPE_CHECKING:
    from torch import nn

    from bigbatch.artifacts.folder import Folder
    from bigbatch.run import Run

__all__ = ["Advice", "AdviceOptions", "advise", "advise_run"]


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
    **options: Any,
) -> Advice:
    """The global batch with the shortest expected time to a loss, for any module. `batch` is the present one.

    `loss(outputs, targets)` returns the mean over samples or one loss per sample; `data` is (inputs, targets), a
    Dataset, or an iterable of such pairs. `optimizer` is a name of `bigbatch list optim`, a dict of its options, or a
    class of torch's; `lr` is the learning rate tuned for `batch`. `epochs`, the length of the training, turns factors
    into steps and hours. `options` are those of `AdviceOptions`: seconds=120.0 for all measurements, steps of the
    copy's short training, batches to time, verify=False, branch=False with its tolerance, quiet=True.
    """
    if not hasattr(model, "named_parameters"):
        raise Problem(f"{type(model).__name__} is not a torch.nn.Module: give the model itself")
    chosen = AdviceOptions(**options)
    with preserve_model(model):  # for the random streams: the model itself is copied
        training = ModuleTraining(optimizer, lr, batch, warmup_epochs, epochs, seed)
        return _advise(ModuleLearner(model, loss, data, training), None, chosen)


def advise_run(run: Run, folder: Folder | None = None, *, data_dir: Path | None = None, **options: Any) -> Advice:
    """The same for a run as its training would begin, or at the newest checkpoint of its folder, which is only read.

    `options` are those of `AdviceOptions`.
    """
    chosen = AdviceOptions(**options)
    if env_world_size() > 1:
        raise Problem(f"advise measures in one process, but {env_world_size()} ranks were started: leave torchrun out")
    learner = RunLearner(run, folder, data_dir)
    try:
        return _advise(learner, folder, chosen)
    finally:
        learner.close()


def _advise(learner: Learner, folder: Folder | None, options: AdviceOptions) -> Advice:
    found = measure_learner(learner, options, read_history(folder))
    branched = None
    if options.branch:
        options.report("training branches at several batches")
        cap = min(learner.data_cap, found.memory.cap or learner.data_cap)
        branched = branch(
            learner,
            cap if learner.whole_batch_at_once else learner.data_cap,
            options.seconds,
            found.step_times.seconds_per_sample_at(learner.now),
            options.tolerance,
        )
    advice = recommend(learner, found, branched)
    if not options.verify:
        return advice
    options.report(f"verifying {advice.batch} against twice as many")
    seconds_per_sample = found.step_times.seconds_per_sample_at(advice.batch)
    return replace(advice, verified=verify_batch(learner, advice.batch, options.seconds / 2, seconds_per_sample))
