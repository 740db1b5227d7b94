"""A model part as layers with times measured on this machine, by hooks that note when each gradient is there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bigbatch.scaling.profile import Layer, Profile
from bigbatch.scaling.shapes import built

REPEATS = 7


def measure(
    name: str, options: Mapping[str, Any], sample_shape: tuple[int, ...], classes: int, rank_batch: int
) -> Profile:
    """One thread, one process, minima over some repetitions after a first one that warms up."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            model, inputs = built(name, options, sample_shape, classes, rank_batch)
        return _timed(name, model, inputs, rank_batch)
    finally:
        torch.set_num_threads(threads)


def _timed(name: str, model: Any, inputs: Any, rank_batch: int) -> Profile:
    arrived: list[tuple[str, float]] = []
    parameters = {label: one for label, one in model.named_parameters() if one.requires_grad}
    hooks = [
        one.register_post_accumulate_grad_hook(lambda _, label=label: arrived.append((label, time.perf_counter())))
        for label, one in parameters.items()
    ]
    forwards: list[float] = []
    backwards: list[dict[str, float]] = []
    order: list[str] = []
    try:
        for _ in range(1 + REPEATS):
            arrived.clear()
            model.zero_grad()
            started = time.perf_counter()
            output = model(inputs)
            loss = (output[0] if isinstance(output, tuple) else output).square().mean()
            forwards.append(time.perf_counter() - started)
            before = time.perf_counter()
            loss.backward()
            order = [label for label, _ in arrived]
            times = [before, *(moment for _, moment in arrived)]
            backwards.append({label: times[index + 1] - times[index] for index, label in enumerate(order)})
    finally:
        for hook in hooks:
            hook.remove()
    timed = backwards[1:]
    layers = tuple(
        Layer(
            label,
            1e6 * min(times[label] for times in timed if label in times),
            (parameters[label].numel() * parameters[label].element_size(),),
        )
        for label in order
    )
    return Profile(
        model=name,
        rank_batch=rank_batch,
        forward_us=1e6 * min(forwards[1:]),
        layers=layers,
        source=f"timed here on one thread, minima of {REPEATS}",
    )
