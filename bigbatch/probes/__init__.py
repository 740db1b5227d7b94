"""Probes: how batch size bends gradients, steps and curvature. They only read.

A part offers `measure(state, config) -> dict`, and its config has `every_steps`. It is asked when the global gradient
is in `.grad` and the step is not yet taken. One that compares the two sides of a step is a generator instead: it
yields where the step is taken and returns its dict. One that says `NEEDS_MICRO_GRADIENTS = True` finds them in
`state.gradient.micro_gradients`. One that also offers `at_rest(state, config) -> dict` is asked that where the
weights stand still, as `bigbatch probe` does, which can afford more than a training.

For any torch.nn.Module and loss, without anything else of bigbatch:

    lipschitz(model, cross_entropy, inputs, targets)["exact"]
    noise_scale(model, cross_entropy, (inputs, targets), global_batch=512)["interval"]
    with stride(model, optimizer) as found:
        optimizer.step()

The functions have the names of their files: the files are imported here, so that a later import of one of them cannot
put the module in the function's place.
"""

from __future__ import annotations

from bigbatch.probes._contract import Config, Probes, State, Unmeasurable
from bigbatch.probes._untouched import untouched
from bigbatch.probes.curvature import curvature
from bigbatch.probes.gradient import gradient
from bigbatch.probes.landscape import landscape
from bigbatch.probes.lipschitz import lipschitz
from bigbatch.probes.noise_scale import noise_scale
from bigbatch.probes.ratio import ratio
from bigbatch.probes.sharpness import sharpness
from bigbatch.probes.stride import stride

# at their own intervals they cost at most 5 % of a training (benchmarks/probes.py)
DEFAULT = ("ratio", "noise_scale", "stride", "lipschitz")

__all__ = [
    "DEFAULT",
    "Config",
    "Probes",
    "State",
    "Unmeasurable",
    "curvature",
    "gradient",
    "landscape",
    "lipschitz",
    "noise_scale",
    "ratio",
    "sharpness",
    "stride",
    "untouched",
]
