"""A model part as layers with times measured on this machine: steps of one process, recorded."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.profile import Layer, Profile
from bigbatch.scaling.recording import StepRecorder
from bigbatch.scaling.stepper import Stepper, WithoutCommunication
from bigbatch.scaling.workload import EngineConfiguration, Workload

WARMUP_STEPS = 2
TIMED_STEPS = 7


def time_layers(workload: Workload, rank_batch: int) -> Profile:
    """One thread, one process, training steps with momentum: the median step after a few that warm up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            run = workload.run(EngineConfiguration("local", 1, rank_batch))
            stepper = Stepper(run, WithoutCommunication(world_size=1))
            steps = [record_one_step(stepper) for _ in range(WARMUP_STEPS + TIMED_STEPS)][WARMUP_STEPS:]
    finally:
        torch.set_num_threads(threads)
    source = f"timed here on one thread, median of {TIMED_STEPS}"
    return median_profile(workload.name, rank_batch, stepper, steps, source)


def record_one_step(stepper: Stepper) -> StepPhases:
    """Record one step; hooks are removed afterwards, so that the next step is undisturbed."""
    with StepRecorder(stepper) as recorder:
        return recorder.record_step()


def median_profile(model: str, rank_batch: int, stepper: Stepper, steps: Sequence[StepPhases], source: str) -> Profile:
    """Return the layers of the median step: medians of single layers would add up to a step that nobody took."""
    sizes = {name: one.numel() * one.element_size() for name, one in stepper.model.named_parameters()}
    step = sorted(steps, key=lambda step: step.step_us)[len(steps) // 2]
    gradients = [bar for bar in step.bars if bar.stream == "compute" and bar.label in sizes]
    return Profile(
        model=model,
        rank_batch=rank_batch,
        forward_us=step.forward_us,
        layers=tuple(Layer(bar.label, bar.end_us - bar.start_us, (sizes[bar.label],)) for bar in gradients),
        update_us=step.step_us - gradients[-1].end_us,
        source=source,
        statistics_bytes=_batchnorm_bytes(stepper),
    )


def _batchnorm_bytes(stepper: Stepper) -> int:
    """The size of BatchNorm's means and variances, which are summed over ranks after the gradients."""
    means = [layer.running_mean for layer in stepper.gradient.statistics.layers]
    return sum(2 * mean.numel() * mean.element_size() for mean in means if mean is not None)
