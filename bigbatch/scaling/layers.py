"""The layers of a model part: their gradients, FLOPs and memory traffic, or their times on this machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bigbatch import datasets, models, parts
from bigbatch.errors import Problem
from bigbatch.scaling.phases import StepPhases
from bigbatch.scaling.profile import Layer, LayerShape, Profile
from bigbatch.scaling.stepper import Stepper, WithoutCommunication, record_steps
from bigbatch.scaling.workload import BYTES_PER_NUMBER, EngineConfiguration, Workload

WARMUP_STEPS = 2
TIMED_STEPS = 7


def build_model(workload: Workload) -> tuple[nn.Module, torch.Tensor]:
    """Build the model of a part, and one synthetic sample for it."""
    shape, classes = workload.sample_shape, workload.classes
    if min(*shape, classes) < 1:
        raise Problem(f"a sample of shape {shape} with {classes} classes is empty: use numbers from 1 on")
    synthetic = {"name": "synthetic", "sample_shape": shape, "classes": classes, "samples": 1}
    dataset = datasets.load(parts.configure("datasets", synthetic))
    model = models.build(parts.configure("models", {**workload.options, "name": workload.name}), dataset)
    return model, dataset.train.fetch(torch.arange(1))[0]


def find_layer_shapes(workload: Workload) -> list[LayerShape]:
    """Return every module without children that forward calls, in that order. Functions (ReLUs, sums) are left out."""
    found: list[LayerShape] = []
    counted: set[int] = set()

    def record(name: str, module: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        numbers_in = sum(tensor.numel() for tensor in given if isinstance(tensor, torch.Tensor))
        result = output if isinstance(output, torch.Tensor) else output[0]
        own = [one for one in module.parameters() if one.requires_grad and id(one) not in counted]
        counted.update(map(id, own))
        sizes = tuple(one.numel() * one.element_size() for one in own)
        found.append(LayerShape(name, sizes, _flops(module, result), BYTES_PER_NUMBER * (numbers_in + result.numel())))

    # the meta device would need no memory, but loads torch's compiler, which takes longer than one sample does
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model, inputs = build_model(workload)
        for name, module in model.named_modules():
            if not list(module.children()):
                module.register_forward_hook(lambda module, given, out, name=name: record(name, module, given, out))
        model.eval()(inputs)
    if not any(shape.gradient_bytes for shape in found):
        raise Problem(f"{type(model).__name__} has no parameter that its layers use: use a model with parameters")
    return found


def _flops(module: nn.Module, output: torch.Tensor) -> float:
    """Two for each weight of a matrix or kernel at each position of the output."""
    if isinstance(module, nn.Embedding):
        return 0.0
    channels = output.shape[1] if isinstance(module, nn.modules.conv._ConvNd) else output.shape[-1]
    positions = output.numel() / max(1, channels)
    return 2.0 * positions * sum(math.prod(weight.shape) for weight in module.parameters() if weight.ndim >= 2)


def time_layers(workload: Workload, rank_batch: int) -> Profile:
    """One thread, one process, training steps with momentum: the median step after a few that warm up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            run = workload.run(EngineConfiguration("local", 1, rank_batch))
            stepper = Stepper(run, WithoutCommunication(world_size=1))
            steps = record_steps(stepper, WARMUP_STEPS + TIMED_STEPS)[WARMUP_STEPS:]
    finally:
        torch.set_num_threads(threads)
    return median_profile(stepper, steps, f"timed here on one thread, median of {TIMED_STEPS}")


def median_profile(stepper: Stepper, steps: Sequence[StepPhases], source: str) -> Profile:
    """Return the layers of the median step: medians of single layers would add up to a step that nobody took."""
    sizes = {name: one.numel() * one.element_size() for name, one in stepper.model.named_parameters()}
    step = sorted(steps, key=lambda step: step.step_us)[len(steps) // 2]
    gradients = [bar for bar in step.bars if bar.stream == "compute" and bar.label in sizes]
    # BatchNorm's means and variances are summed over ranks after the gradients
    means = [layer.running_mean for layer in stepper.gradient.statistics.layers]
    return Profile(
        model=stepper.run.model.name,
        rank_batch=stepper.global_batch // stepper.engine.world_size,
        forward_us=step.forward_us,
        layers=tuple(Layer(bar.label, bar.end_us - bar.start_us, (sizes[bar.label],)) for bar in gradients),
        update_us=step.step_us - gradients[-1].end_us,
        source=source,
        statistics_bytes=sum(2 * mean.numel() * mean.element_size() for mean in means if mean is not None),
    )
