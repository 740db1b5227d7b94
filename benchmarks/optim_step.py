"""Step time of LARS, LAMB and Muon over `torch.optim.SGD(fused=True, momentum=0.9)`, beside their peers.

Peers are timm's and pytorch_optimizer's LARS and LAMB, and torch's Muon with torch's AdamW for the vectors.

    pip install --no-deps --target .bench-peers -r benchmarks/requirements.txt
    PYTHONPATH=.bench-peers python benchmarks/optim_step.py

Without the peers it measures ours alone and says so. All optimizers run interleaved in one process on one thread,
each on its own copy of the tensors; before each step the gradients are restored and the caches are swept, as a
forward and a backward pass would, outside the timer. Thread CPU time is compared, step by step with the SGD step of
the same round; each goes first in turn. Printed are the median ratio over the rounds, the quartiles around it, and
whether it is within its bar; the script ends in 1 where one is not. Muon's bar is torch's own Muon, which multiplies in
bfloat16: fast on GPUs, slow on a CPU without instructions for it. So the bar is torch's in float32, as ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Parameter

from bigbatch.optim import LAMB, LARS, Muon

BARS = {("resnet50", "LARS"): 1.8, ("small", "LARS"): 1.5, ("resnet50", "LAMB"): 3.5, ("small", "LAMB"): 4.0}
ROUNDS = {"resnet50": 30, "small": 150}
MUON_ROUNDS = {"resnet50": 3, "small": 15}
WEIGHT_DECAY = 1e-4


def resnet50_shapes() -> list[tuple[int, ...]]:
    """The 161 tensors of ResNet-50."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, channels, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if block == 0:
                shapes += [(4 * width, channels, 1, 1), (4 * width,), (4 * width,)]
            channels = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def small_shapes() -> list[tuple[int, ...]]:
    """400 small tensors: the weights and biases of 200 layers, 64 to 64."""
    return [(64, 64), (64,)] * 200


def tensors(shapes: list[tuple[int, ...]]) -> list[Parameter]:
    generator = torch.Generator().manual_seed(0)
    found = [Parameter(0.05 * torch.randn(shape, generator=generator)) for shape in shapes]
    for parameter in found:
        parameter.grad = 0.01 * torch.randn(parameter.shape, generator=generator)
    return found


Maker = Callable[[list[Parameter]], Any]


def ours() -> dict[str, Maker]:
    return {
        "LARS bigbatch": lambda params: LARS(params, lr=1e-3, weight_decay=WEIGHT_DECAY),
        "LAMB bigbatch": lambda params: LAMB(params, lr=1e-3, weight_decay=WEIGHT_DECAY),
    }


def peers() -> dict[str, Maker]:
    """Those that are installed."""
    found: dict[str, Maker] = {}
    try:
        _stand_in_for_torchvision()
        from timm.optim.lamb import Lamb as TimmLamb
        from timm.optim.lars import Lars as TimmLars

        found["LARS timm"] = lambda params: TimmLars(params, lr=1e-3, momentum=0.9, weight_decay=WEIGHT_DECAY)
        found["LAMB timm"] = lambda params: TimmLamb(params, lr=1e-3, weight_decay=WEIGHT_DECAY)
    except ImportError as error:
        print(f"timm is not measured ({error}): see this script's docstring for how to install the peers")
    try:
        from pytorch_optimizer import LARS as OtherLARS
        from pytorch_optimizer import Lamb as OtherLamb

        found["LARS pytorch_optimizer"] = lambda params: OtherLARS(
            params, lr=1e-3, momentum=0.9, weight_decay=WEIGHT_DECAY
        )
        found["LAMB pytorch_optimizer"] = lambda params: OtherLamb(params, lr=1e-3, weight_decay=WEIGHT_DECAY)
    except ImportError as error:
        print(f"pytorch_optimizer is not measured ({error}): see this script's docstring for how to install the peers")
    return found


class TorchMuon:
    """torch's Muon for matrices and flattened convolutions, torch's AdamW for vectors."""

    def __init__(self, params: list[Parameter], dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.matrices = [(p, Parameter(p.data.flatten(1))) for p in params if p.ndim > 1]
        self.muon = torch.optim.Muon([flat for _, flat in self.matrices], lr=1e-3, weight_decay=WEIGHT_DECAY)
        vectors = [p for p in params if p.ndim == 1]
        self.adamw = torch.optim.AdamW(vectors, lr=1e-3, weight_decay=WEIGHT_DECAY, fused=True)

    def step(self) -> None:
        for parameter, flat in self.matrices:
            flat.grad = parameter.grad.flatten(1)  # type: ignore[union-attr]
        to_bfloat16 = torch.Tensor.bfloat16
        if self.dtype is torch.float32:  # torch's Muon always calls .bfloat16(), and changes what it returns
            torch.Tensor.bfloat16 = torch.Tensor.clone  # type: ignore[method-assign]
        try:
            self.muon.step()
        finally:
            torch.Tensor.bfloat16 = to_bfloat16  # type: ignore[method-assign]
        self.adamw.step()


def muons(case: str) -> dict[str, Maker]:
    """Ours and torch's. On ResNet-50's tensors bfloat16 takes minutes per step on most CPUs."""
    made: dict[str, Maker] = {
        "Muon bigbatch": lambda params: Muon(params, lr=1e-3, weight_decay=WEIGHT_DECAY),
        "Muon torch_float32": lambda params: TorchMuon(params, torch.float32),
    }
    return made | ({"Muon torch": lambda params: TorchMuon(params, torch.bfloat16)} if case == "small" else {})


def _stand_in_for_torchvision() -> None:
    """timm's optimizers need nothing of timm's models, which want torchvision: put empty modules in their place."""
    spec = importlib.util.find_spec("timm")
    if spec is None:
        raise ImportError("No module named 'timm'")
    package, models = types.ModuleType("timm"), types.ModuleType("timm.models")
    package.__path__ = list(spec.submodule_search_locations or [])
    models.group_parameters = None  # type: ignore[attr-defined]
    sys.modules.update({"timm": package, "timm.models": models})


def measure(shapes: list[tuple[int, ...]], makers: dict[str, Maker], rounds: int) -> dict[str, list[float]]:
    """Seconds of thread CPU time of each optimizer in each round."""
    entries = []
    for name, make in makers.items():
        params = tensors(shapes)
        saved = [parameter.grad.clone() for parameter in params if parameter.grad is not None]
        entries.append((name, params, saved, make(params)))
    swept = torch.zeros(16 << 20)
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for round_number in range(rounds + 3):
        # each goes first in turn: what ran just before leaves its traces in the allocator and the caches
        first = round_number % len(entries)
        for name, params, saved, optimizer in entries[first:] + entries[:first]:
            for parameter, gradient in zip(params, saved, strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(gradient)
            swept.add_(1)
            start = time.thread_time()
            optimizer.step()
            took = time.thread_time() - start
            if round_number >= 3:  # the first rounds make state and warm the allocator
                seconds[name].append(took)
    return seconds


def report(case: str, tensor_count: int, seconds: dict[str, list[float]]) -> bool:
    """Print one line an optimizer; whether ours stay under the bars."""
    base = seconds.pop("SGD torch fused")
    print(f"\n{case}: {tensor_count} tensors, SGD {1e3 * statistics.median(base):.2f} ms, n = {len(base)} rounds")
    quartiles = {
        name: statistics.quantiles([a / b for a, b in zip(seconds[name], base, strict=True)], n=4)
        for name in sorted(seconds)
    }
    passed = True
    for name, (low, middle, high) in quartiles.items():
        kind, _, whose = name.partition(" ")
        verdict = ""
        if whose == "bigbatch":
            bar = quartiles["Muon torch_float32"][1] if kind == "Muon" else BARS[case, kind]
            passed &= middle <= bar
            verdict = f"   bar {bar:.2f}: {'kept' if middle <= bar else 'MISSED'}"
        print(f"  {name:26s} {middle:5.2f}x  [{low:.2f}, {high:.2f}]{verdict}")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="rounds a case (default: 30 for ResNet-50, 150 for small tensors)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    sgd: dict[str, Maker] = {
        "SGD torch fused": lambda params: torch.optim.SGD(
            params, lr=1e-3, momentum=0.9, weight_decay=WEIGHT_DECAY, fused=True
        )
    }
    found = peers()
    if not found:
        print("no peers of LARS and LAMB are installed: ours only")
    passed = True
    for case, shapes in (("resnet50", resnet50_shapes()), ("small", small_shapes())):
        for makers, count in ((ours() | found, ROUNDS[case]), (muons(case), MUON_ROUNDS[case])):
            passed &= report(case, len(shapes), measure(shapes, sgd | makers, rounds or count))
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
