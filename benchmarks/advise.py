"""Does advice keep its promises? Time to a loss at several batches over that at the present one, beside the promise.

    python benchmarks/advise.py [--seeds 2] [--seconds 15] [PROBLEM ...]

Advises seven small problems. Then trains each from the start, with learning rates by the optimizer's scaling rule,
until the running mean of its loss is below a target, in CPU seconds of one thread: at the present batch, at the advised
one, and near four and sixteen times the present one. Prints how many of the promised 90 % intervals held.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

import torch
from torch import nn

from bigbatch.advice import AdviceOptions
from bigbatch.advice.history import History
from bigbatch.advice.learner import Learner, ModuleLearner, ModuleTraining, RunLearner
from bigbatch.advice.measurement import measure_learner
from bigbatch.advice.recommendation import recommend
from bigbatch.output.formatting import format_range
from bigbatch.recipes import load_run

_MOST_EPOCHS = 60
_MEMORY_SAMPLES = 1024  # of the running mean, the same at every batch


class BenchmarkProblem(NamedTuple):
    build: Callable[[int], Learner]  # from a seed
    target_loss: float


def build_digits(*settings: str) -> Callable[[int], Learner]:
    return lambda seed: RunLearner(load_run("digits", [*settings, f"seed={seed}"]))


def build_classes(seed: int) -> Learner:
    """Five classes of a random linear teacher, a tenth of the labels wrong."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(4000, 20, generator=generator)
    y = (x @ torch.randn(20, 5, generator=generator)).argmax(dim=1)
    wrong = torch.rand(4000, generator=generator) < 0.1
    y[wrong] = torch.randint(5, (int(wrong.sum()),), generator=generator)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    return ModuleLearner(
        model, nn.functional.cross_entropy, (x, y), ModuleTraining("momentum", 0.02, 16, epochs=10, seed=seed)
    )


def build_regression(seed: int) -> Learner:
    """A linear model of noisy targets."""
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(4000, 30, generator=generator)
    y = x @ torch.randn(30, 1, generator=generator) + torch.randn(4000, 1, generator=generator)
    torch.manual_seed(seed)
    training = ModuleTraining("sgd", 0.005, 8, epochs=10, seed=seed)
    return ModuleLearner(nn.Linear(30, 1), nn.functional.mse_loss, (x, y), training)


def build_autoencoder(seed: int) -> Learner:
    """Points near a plane of four dimensions, through a layer of eight."""
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(3000, 4, generator=generator) @ torch.randn(4, 40, generator=generator)
    x += 0.1 * torch.randn(3000, 40, generator=generator)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(40, 8), nn.Tanh(), nn.Linear(8, 40))
    training = ModuleTraining("adam", 0.003, 16, epochs=20, seed=seed)
    return ModuleLearner(model, nn.functional.mse_loss, (x, x), training)


PROBLEMS = {
    "digits, CNN, momentum": BenchmarkProblem(build_digits(), 0.2),
    "digits, MLP, momentum": BenchmarkProblem(build_digits("model=mlp", "optimizer.lr=0.05"), 0.3),
    "digits, MLP, Adam": BenchmarkProblem(build_digits("model=mlp", "optimizer=adam"), 0.3),
    "digits, LSTM, momentum": BenchmarkProblem(build_digits("model=lstm", "model.hidden=32", "optimizer.lr=0.1"), 0.7),
    "noisy classes, MLP, momentum": BenchmarkProblem(build_classes, 0.7),
    "regression, linear, SGD": BenchmarkProblem(build_regression, 1.5),
    "autoencoder, Adam": BenchmarkProblem(build_autoencoder, 1.5),
}


def measure_seconds(problem: BenchmarkProblem, batch: int, seed: int) -> float | None:
    """CPU seconds until the running mean of the loss is below the target; None where that never happens."""
    learner = problem.build(seed)
    factor, options = learner.scale_options(batch)
    for group in learner.optimizer.param_groups:
        group.update({name: value for name, value in options.items() if name in group})
    keep, mean, spent = max(0.0, 1 - batch / _MEMORY_SAMPLES), None, 0.0
    while learner.epochs < _MOST_EPOCHS:
        started = time.process_time()
        loss = learner.step(batch, factor * learner.baseline.lr)
        spent += time.process_time() - started
        mean = loss if mean is None else keep * mean + (1 - keep) * loss
        if mean < problem.target_loss and learner.samples >= _MEMORY_SAMPLES:
            return spent
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    promised = held = 0
    for name in options.problems:
        problem = PROBLEMS[name]
        learner = problem.build(0)
        advice = recommend(learner, measure_learner(learner, AdviceOptions(seconds=options.seconds), History()))
        scale = format_range(*advice.noise_scale_interval)
        print(f"{name}: advised {advice.batch}, grade {advice.grade}; noise scale {scale}", flush=True)
        wanted = [advice.batch, 4 * advice.now, 16 * advice.now]
        nearest = (min(advice.goodput, key=lambda point: abs(point.batch - size)) for size in wanted)
        points = {point.batch: point for point in nearest if point.batch != advice.now}
        base = fmean(measure_seconds(problem, advice.now, seed) or float("nan") for seed in range(options.seeds))
        for batch, point in sorted(points.items()):
            found = [measure_seconds(problem, batch, seed) for seed in range(options.seeds)]
            factor = None if None in found else fmean(seconds or 0.0 for seconds in found) / base
            low, high = (None if end is None else 1 / end for end in reversed(point.interval))
            holds = (factor is None and high is None) or (
                factor is not None and (low or 0.0) <= factor <= (high or float("inf"))
            )
            promised, held = promised + 1, held + holds
            measured = "never reached" if factor is None else f"{factor:.3g}"
            verdict = "held" if holds else "did not hold"
            promise = format_range(low, high)
            print(f"  {advice.now} -> {batch}: promised × {promise}, measured × {measured}: {verdict}", flush=True)
    print(f"{held} of {promised} promised intervals held, on {len(options.problems)} problems")


if __name__ == "__main__":
    main()
