"""A model part as layers with times measured on this machine, by hooks that note when each gradient is there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bigbatch.scaling.profile import Layer, Profile

if TYPE_CHECKING:
    from bigbatch.scaling.measured.stepper import Stepper

WARMUP = 2
REPEATS = 7


@dataclass(frozen=True)
class StepTimes:
    """One step without communication, in microseconds from its start."""

    forward_us: float
    ready_us: tuple[tuple[str, float], ...]  # parameters in the order in which their gradients were there
    step_us: float


def time_layers(
    name: str, options: Mapping[str, Any], sample_shape: tuple[int, ...], classes: int, rank_batch: int
) -> Profile:
    """One thread, one process, a training step with momentum; the median of some after a few that warm up."""
    import torch

    from bigbatch.scaling.measured.stepper import Silent, Stepper, run_of

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            shapes: dict[str, Any] = {"sample_shape": sample_shape, "classes": classes}
            run = run_of({"name": name, **options}, {"name": "local"}, ranks=1, rank_batch=rank_batch, **shapes)
            stepper = Stepper(run, Silent(ranks=1))
            steps = time_steps(stepper, REPEATS)
    finally:
        torch.set_num_threads(threads)
    return median_profile(name, rank_batch, stepper, steps, f"timed here on one thread, median of {REPEATS}")


def time_steps(stepper: Stepper, repeats: int) -> list[StepTimes]:
    """Steps after some that warm up."""
    return [time_step(stepper) for _ in range(WARMUP + repeats)][WARMUP:]


def time_step(stepper: Stepper) -> StepTimes:
    """One step with hooks on its passes."""
    forward: list[float] = []
    arrived: list[tuple[str, float]] = []
    hooks = [stepper.gradient.forward.wrapped.register_forward_hook(lambda *_: forward.append(time.perf_counter()))]
    hooks += [
        one.register_post_accumulate_grad_hook(lambda _, label=label: arrived.append((label, time.perf_counter())))
        for label, one in stepper.model.named_parameters()
        if one.requires_grad
    ]
    try:
        started = time.perf_counter()
        stepper.step()
        step_us = 1e6 * (time.perf_counter() - started)
    finally:
        for hook in hooks:
            hook.remove()
    ready = tuple((label, 1e6 * (moment - started)) for label, moment in arrived)
    return StepTimes(1e6 * (forward[-1] - started), ready, step_us)


def median_profile(name: str, rank_batch: int, stepper: Stepper, steps: Sequence[StepTimes], source: str) -> Profile:
    """The median step as a whole: medians of single layers would add up to a step that nobody took."""
    sizes = {label: one.numel() * one.element_size() for label, one in stepper.model.named_parameters()}
    usual = sorted(steps, key=lambda step: step.step_us)[len(steps) // 2]
    now_us, layers = usual.forward_us, []
    for label, ready_us in usual.ready_us:
        layers.append(Layer(label, ready_us - now_us, (sizes[label],)))
        now_us = ready_us
    return Profile(
        model=name,
        rank_batch=rank_batch,
        forward_us=usual.forward_us,
        layers=tuple(layers),
        update_us=usual.step_us - now_us,
        source=source,
        statistics_bytes=_statistics_bytes(stepper),
    )


def _statistics_bytes(stepper: Stepper) -> int:
    """Means and variances of BatchNorm, which batchnorm.py sums over ranks."""
    means = [layer.running_mean for layer in stepper.gradient.statistics.layers]
    return sum(2 * mean.numel() * mean.element_size() for mean in means if mean is not None)
