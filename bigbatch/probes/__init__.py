"""Probes: how the batch size changes gradients, steps and curvature. They only read.

A part offers `measure(state, config) -> dict`, and its config has `every_steps`. It is called when the global gradient
is in `.grad` and the step is not yet taken. A probe that compares the two sides of a step is a generator instead: it
yields where the step is taken and returns its dict. With `needs_micro_gradients = True` in its Config it finds them in
`state.gradient.micro_gradients`. A probe may offer `measure_at_rest(state, config) -> dict` for weights that do not
change, as in `bigbatch probe`, which can afford more than a training.

For any torch.nn.Module and loss, without anything else of bigbatch:

    lipschitz(model, cross_entropy, inputs, targets).exact
    noise_scale(model, cross_entropy, (inputs, targets), global_batch=512).interval
    with stride(model, optimizer) as found:
        optimizer.step()

Results are dataclasses; `found["exact"]` is the same as `found.exact`. The functions have the names of their files: the
files are imported here, so that a later import of one of them cannot replace the function by the module.
"""

from __future__ import annotations

from bigbatch.probes.curvature import curvature
from bigbatch.probes.gradient import gradient
from bigbatch.probes.landscape import landscape
from bigbatch.probes.lipschitz import lipschitz
from bigbatch.probes.measurement.contract import ProbeConfig as Config
from bigbatch.probes.measurement.contract import ProbeSet, ProbeState, Unmeasurable
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.noise_scale import noise_scale
from bigbatch.probes.ratio import ratio
from bigbatch.probes.sharpness import sharpness
from bigbatch.probes.stride import stride

# at their own intervals they cost at most 5 % of a training (benchmarks/probes.py)
DEFAULT = ("ratio", "noise_scale", "stride", "lipschitz")

__all__ = [
    "DEFAULT",
    "Config",
    "ProbeSet",
    "ProbeState",
    "Unmeasurable",
    "curvature",
    "gradient",
    "landscape",
    "lipschitz",
    "noise_scale",
    "preserve_model",
    "ratio",
    "sharpness",
    "stride",
]
