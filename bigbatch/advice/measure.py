"""Everything that advice measures, in its order: a short training, the noise, memory, step times, gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bigbatch.advice import memory, noise, times
from bigbatch.advice.learner import Learner
from bigbatch.advice.noise import Noise
from bigbatch.advice.run_learner import RunLearner
from bigbatch.errors import Problem
from bigbatch.probes import Unmeasurable, gradient, lipschitz, stride
from bigbatch.probes.measurement.objective import trainable_parameters
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.measurement.record import to_json

Say = Callable[[str], None]

# shares of the time that is given
_TRAINING, _NOISE, _TIMES, _GRADIENT = 0.4, 0.25, 0.25, 0.1
_MOST_STEPS = 2000
_STEPS_AFTER_WARMUP = 200, 50  # at most, at least; between them a tenth of the training
_FEWEST_STEPS = 3
_ENOUGH_STEPS = 50  # a checkpoint beyond these, and beyond its warm-up, is measured as it is
_LOOKS = 6  # at the noise scale on the way
_WATCHED = 24  # steps whose stride and curvature are taken
_LIPSCHITZ_SAMPLES = 32
_POPULATION = 2048


@dataclass
class Measured:
    """What was found; `rows` are the watched steps of the short training, or of the run's own records."""

    noise: Noise
    memory: memory.Memory
    times: times.StepTimes
    gradient: dict[str, Any]
    over_training: list[dict[str, Any]]
    strides: list[dict[str, Any]]
    lipschitz: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    steps_trained: int
    seconds: dict[str, float]
    warnings: list[str] = field(default_factory=list)


def measured(
    learner: Learner, *, seconds: float, steps: int | None, batches: Sequence[int] | None, say: Say
) -> Measured:
    if batches is not None:
        check_batches(batches, learner.data_cap)
    spent: dict[str, float] = {}
    clock = _Clock(spent)
    warnings: list[str] = []

    say(f"training {learner.of} through its warm-up" if not learner.steps else f"looking at {learner.of}")
    with clock("training"):
        watched = _Watched(learner, warnings)
        trained = _train(learner, watched, _TRAINING * seconds, steps)
    say(f"measuring the noise scale after {learner.steps} steps")
    with clock("noise scale"):
        found = noise.measured(learner, _NOISE * seconds)
        watched.note_noise(found)
    with clock("memory"):
        small = min(16, max(1, learner.data_cap // 4))
        room = memory.measured(learner.device, lambda n: _backward(learner, n), small, min(4 * small, learner.data_cap))
    with clock("step times"), learner.kept():
        cap = min(learner.data_cap, room.cap or learner.data_cap) if learner.in_one_piece else learner.data_cap
        affordable = watched.seconds_per_sample, _TIMES * seconds
        sizes = tuple(batches) if batches else times.spaced(learner.now, cap, *affordable)
        say(f"timing steps of {', '.join(map(str, sizes))} samples")
        if isinstance(learner, RunLearner):
            learner.find_micro_batch(sizes[-1])
        step_times = times.timed(sizes, learner.step, _TIMES * seconds, learner.clock)
    say("measuring gradients against the batch")
    with clock("gradients"):
        most = int(_GRADIENT * seconds / watched.seconds_per_sample)
        population = max(min(64, learner.data_cap), min(_POPULATION, learner.data_cap, most))
        against = gradient(
            learner.model,
            learner.subject.loss,
            learner.subject.samples,
            population=population,
            discards=(),
            seed=learner.subject.seed,
        )
    return Measured(
        noise=found,
        memory=room,
        times=step_times,
        gradient=to_json(against),
        over_training=watched.noises,
        strides=watched.strides,
        lipschitz=watched.curvatures,
        layers=_layers(learner, found, watched.layer_strides),
        steps_trained=trained,
        seconds={name: round(value, 2) for name, value in spent.items()},
        warnings=warnings,
    )


def check_batches(batches: Sequence[int], cap: int) -> None:
    """The batches that somebody wants timed."""
    if len(set(batches)) < 3 or min(batches) < 1 or list(batches) != sorted(set(batches)):
        raise Problem(
            f"batches {list(batches)} make no line: give three or more rising numbers, like 32,64,128,256,512"
        )
    if max(batches) > cap:
        raise Problem(f"a batch of {max(batches)} is more than the {cap} samples there are: give at most {cap}")


class _Clock:
    """`with clock("noise scale"):` adds the time within to a table."""

    def __init__(self, table: dict[str, float]) -> None:
        self._table = table

    def __call__(self, name: str) -> _Clock:
        self._name = name
        return self

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._table[self._name] = time.perf_counter() - self._started


# -- the short training


class _Watched:
    """What is written down of a training on its way."""

    def __init__(self, learner: Learner, warnings: list[str]) -> None:
        self.learner = learner
        self.warnings = warnings
        self.noises: list[dict[str, Any]] = []
        self.strides: list[dict[str, Any]] = []
        self.curvatures: list[dict[str, Any]] = []
        self.layer_strides: dict[str, float] = {}
        self.seconds_per_step = math.inf
        self._fixed = learner.subject.samples.fetch(learner.subject.fixed_indices(_LIPSCHITZ_SAMPLES))

    @property
    def seconds_per_sample(self) -> float:
        return self.seconds_per_step / self.learner.now

    def note_noise(self, found: Noise) -> None:
        place = {"step": self.learner.steps, "epochs": self.learner.epochs}
        self.noises.append({**place, **{key: found.about()[key] for key in ("estimate", "interval", "batch")}})

    def step(self) -> None:
        learner = self.learner
        started = time.perf_counter()
        learner.step(learner.now)
        learner.clock()  # waits for a GPU
        self.seconds_per_step = min(self.seconds_per_step, time.perf_counter() - started)

    def watched_step(self) -> None:
        """With the curvature before it and its stride."""
        learner = self.learner
        place = {"step": learner.steps + 1, "epochs": learner.epochs, "lr": learner.lr()}
        try:
            curved = lipschitz(learner.model, learner.subject.loss, *self._fixed, exact=False)
            self.curvatures.append({**place, "finite": curved["finite"], "radius": curved["radius"]})
        except Unmeasurable as problem:
            if str(problem) not in self.warnings:
                self.warnings.append(str(problem))
        with stride(learner.model, learner.optimizer) as moved:
            loss = learner.step(learner.now)
        self.strides.append({**place, "stride": moved["stride"], "normalised": moved["normalised"], "loss": loss})
        self.layer_strides = moved["layers"]


def _train(learner: Learner, watched: _Watched, seconds: float, asked: int | None) -> int:
    """Through the warm-up and some more, as far as time goes, or as many steps as asked; gives how many it took.

    It looks at the noise ever more seldom, since that changes most at the beginning, and for at most a quarter of
    the time.
    """
    started = time.perf_counter()
    before = learner.steps
    wanted = _steps_wanted(learner) if asked is None else asked
    look_at = {0} | {wanted >> place for place in range(1, _LOOKS - 1)}
    watch_at = {round(place * (wanted - 1) / (_WATCHED - 1)) for place in range(_WATCHED)}
    with preserve_model(learner.model):  # a gradient that is not finite gets its own sentence
        learner.subject.objective(learner.subject.fixed_indices(8)).gradient()
    with learner.kept():  # the second one says how long a step takes
        watched.step()
        watched.step()
    looking = 0.0
    for number in range(wanted):
        look_started = time.perf_counter()
        if asked is None and number >= _FEWEST_STEPS and look_started - started > seconds:
            break
        if number in look_at and looking + noise.glance_samples(learner) * watched.seconds_per_sample < seconds / 4:
            watched.note_noise(noise.at_a_glance(learner))
            looking += time.perf_counter() - look_started
        if number in watch_at:
            watched.watched_step()
        else:
            watched.step()
    trained = learner.steps - before
    if not trained:  # a checkpoint is not moved
        with learner.kept():
            watched.watched_step()
    if not learner.warm:
        watched.warnings.append(
            f"the warm-up of {learner.warmup_epochs:g} epochs was not over after {learner.epochs:.2g}: "
            f"give more --seconds or --steps"
        )
    return trained


def _steps_wanted(learner: Learner) -> int:
    if learner.warm and learner.steps >= _ENOUGH_STEPS:
        return 0
    warmup = math.ceil(max(0.0, learner.warmup_epochs - learner.epochs) * learner.samples_per_epoch / learner.now)
    most, least = _STEPS_AFTER_WARMUP
    whole = math.inf if learner.total_samples is None else learner.total_samples / learner.now
    after = min(most, max(least, whole / 10))
    return int(max(0, min(warmup + after, whole - learner.steps, _MOST_STEPS)))


# -- the rest


def _backward(learner: Learner, samples: int) -> None:
    numbers = torch.arange(samples) % len(learner.subject.samples)
    with preserve_model(learner.model):
        learner.subject.objective(numbers).gradient()


def _layers(learner: Learner, found: Noise, strides: dict[str, float]) -> list[dict[str, Any]]:
    """By tensor: ‖w‖, ‖g‖ of the present batch, their noise_to_signal, its own noise scale and its stride."""
    rows = []
    for name, parameter in trainable_parameters(learner.model).items():
        parts = found.layers[name]
        weight = float(parameter.detach().double().norm())
        slope = math.sqrt(max(0.0, parts["signal"] + parts["noise"] / learner.now))
        rows.append(
            {
                "name": name,
                "dimensions": parameter.dim(),
                "elements": parameter.numel(),
                "weight": weight,
                "gradient": slope,
                "ratio": weight / slope if slope else None,
                "noise_scale": parts["noise"] / parts["signal"] if parts["signal"] > 0 else None,
                "stride": strides.get(name),
                **parts,
            }
        )
    return rows
