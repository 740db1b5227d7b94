"""Everything that advice measures, in its order: a short training, noise, memory, step times, gradients."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from bigbatch.advice import costs
from bigbatch.advice.goodput import LEVEL
from bigbatch.advice.history import CurvaturePoint, History, NoisePoint, StridePoint
from bigbatch.advice.learner import Learner
from bigbatch.advice.learning_rates import TensorSummary
from bigbatch.advice.noise import (
    NoiseOutlook,
    NoiseSample,
    assess_outlook,
    count_quick_samples,
    sample_noise,
    sample_noise_quickly,
)
from bigbatch.errors import Problem
from bigbatch.probes import Unmeasurable, gradient, lipschitz, stride
from bigbatch.probes.gradient import GradientMeasurement
from bigbatch.probes.measurement.objective import describe_mode, trainable_parameters
from bigbatch.probes.measurement.read_only import preserve_model
from bigbatch.probes.measurement.record import Record

# fractions of the given time
_TRAINING, _INITIALISATIONS, _NOISE, _TIMES, _GRADIENT = 0.3, 0.15, 0.2, 0.25, 0.1
_MORE_INITIALISATIONS = 2
_ASSUMED_LENGTH = 16  # of a training whose length is not known, over what was trained here
_MOST_STEPS = 2000
_STEPS_AFTER_WARMUP = 200, 50  # at most, at least; between them a tenth of the training
_FEWEST_STEPS = 3
_ENOUGH_STEPS = 50  # a checkpoint beyond these, and beyond its warm-up, is not trained further
_NOISE_POINTS = 6  # over the short training
_OBSERVED_STEPS = 24  # with stride and curvature
_LIPSCHITZ_SAMPLES = 32
_POPULATION = 2048


@dataclass(frozen=True)
class AdviceOptions:
    """How long and at what to measure."""

    seconds: float = 120.0
    steps: int | None = None  # of the short training; None: warm-up and some more
    batches: Sequence[int] | None = None  # to time; None: chosen by the present batch
    verify: bool = False
    branch: bool = False
    tolerance: float | None = None  # ε of a branch's loss; None: what the base gains in the second half of its samples
    quiet: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise Problem(f"seconds must be a finite number above 0, got {self.seconds}: give a number like 60")
        if self.steps is not None and self.steps < 1:
            raise Problem(f"steps must be at least 1, got {self.steps}: give 1 or more, or leave it out")

    def check_batches(self, cap: int) -> None:
        """Raise a Problem if the batches to time do not define a line, or are larger than the data."""
        if self.batches is None:
            return
        batches = list(self.batches)
        if len(set(batches)) < 3 or min(batches) < 1 or batches != sorted(set(batches)):
            raise Problem(
                f"batches {batches} do not define a line: give three or more increasing numbers, like 32,64,128,256,512"
            )
        if max(batches) > cap:
            raise Problem(f"a batch of {max(batches)} is larger than the {cap} samples: give at most {cap}")

    def report(self, text: str) -> None:
        """Print what is being measured to stderr."""
        if not self.quiet:
            print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Conditions(Record):
    """Where and when something was measured."""

    OMIT_IF_NONE = ("batchnorm", "dropout")

    seed: int
    steps: int
    steps_trained_here: int
    epochs: float
    warmup_epochs: float
    lr: float
    level: float
    lipschitz_radius: float | None
    seconds: dict[str, float]  # spent, by what was measured
    threads: int
    device: str
    mode: str
    batchnorm: str | None = None
    dropout: str | None = None


@dataclass(frozen=True)
class MeasurementResults:
    noise: NoiseSample
    outlook: NoiseOutlook
    memory: costs.MemoryUse
    step_times: costs.StepTimes
    gradient: GradientMeasurement
    history: History
    layers: list[TensorSummary]
    about: Conditions
    warnings: list[str]


def measure_learner(learner: Learner, options: AdviceOptions, recorded: History) -> MeasurementResults:
    """All measurements; points over the training are added to those that are recorded."""
    options.check_batches(learner.data_cap)
    spent: dict[str, float] = {}
    training = ObservedTraining(learner, recorded)
    action = "measuring" if learner.steps else "training"
    options.report(f"{action} {learner.of}{'' if learner.steps else ' through its warm-up'}")
    with _record_time(spent, "training"):
        trained = _train(training, _TRAINING * options.seconds, options.steps)
    options.report(f"measuring the noise scale after {learner.steps} steps")
    with _record_time(spent, "noise scale"):
        noise = sample_noise(learner, _NOISE * options.seconds)
        training.add_noise(noise)
    others = None
    if learner.steps == trained:  # the training began here, and might have begun with other weights
        with _record_time(spent, "other initialisations"), learner.undo_steps():
            others = _measure_initialisations(training, _INITIALISATIONS * options.seconds)
    steps_in_all = learner.total_samples / learner.now if learner.total_samples else _ASSUMED_LENGTH * learner.steps
    doublings = math.log2(max(1.0, steps_in_all / max(1, learner.steps)))
    outlook = assess_outlook(recorded.over_training, doublings, others)
    with _record_time(spent, "memory"):
        small = min(16, max(1, learner.data_cap // 4))
        larger = min(4 * small, learner.data_cap)
        memory = costs.measure_memory(learner.device, lambda n: _backward(learner, n), small, larger)
        if not learner.whole_batch_at_once:
            memory = replace(memory, limits="a micro-batch")
    with _record_time(spent, "step times"), learner.undo_steps():
        cap = min(learner.data_cap, memory.cap or learner.data_cap) if learner.whole_batch_at_once else learner.data_cap
        seconds = _TIMES * options.seconds
        batches = options.batches or costs.choose_batches(learner.now, cap, training.seconds_per_sample, seconds)
        options.report(f"timing steps of {', '.join(map(str, batches))} samples")
        learner.find_micro_batch(batches[-1])
        unit = "CPU seconds of one thread" if learner.counts_cpu_seconds else "seconds"
        times = costs.time_steps(batches, learner.step, seconds, learner.clock, unit)
    options.report("measuring gradients against the batch")
    with _record_time(spent, "gradients"):
        most = int(_GRADIENT * options.seconds / training.seconds_per_sample)
        population = max(min(64, learner.data_cap), min(_POPULATION, learner.data_cap, most))
        probed = learner.probed
        by_batch = gradient(
            probed.model, probed.loss, probed.samples, population=population, discards=(), seed=probed.seed
        )
    about = Conditions(
        seed=probed.seed,
        steps=learner.steps,
        steps_trained_here=trained,
        epochs=learner.epochs,
        warmup_epochs=learner.warmup_epochs,
        lr=learner.lr(),
        level=LEVEL,
        lipschitz_radius=recorded.lipschitz[-1].radius if recorded.lipschitz else None,
        seconds=spent,
        threads=torch.get_num_threads(),
        device=str(learner.device),
        **describe_mode(learner.model, noise.micro_batch),
    )
    return MeasurementResults(
        noise=noise,
        outlook=outlook,
        memory=memory,
        step_times=replace(times, micro_batch=learner.micro_batch),
        gradient=by_batch,
        history=recorded,
        layers=_summarize_tensors(learner, noise, training.layer_strides),
        about=about,
        warnings=[*training.warnings, *learner.warnings],
    )


@contextmanager
def _record_time(seconds: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - started, 2)


def _place_noise(learner: Learner, found: NoiseSample) -> NoisePoint:
    drawn = found.batch, found.micro_batch, len(found.noise)
    return NoisePoint(learner.steps, learner.epochs, found.estimate, found.interval, *drawn)


# -- the short training


class ObservedTraining:
    """A short training, and what is recorded during it."""

    def __init__(self, learner: Learner, history: History) -> None:
        self.learner = learner
        self.warnings: list[str] = []
        self.history = history
        self.layer_strides: dict[str, float] = {}
        self.seconds_per_step = math.inf
        self._fixed = learner.probed.fetch(learner.probed.fixed_indices(_LIPSCHITZ_SAMPLES))

    @property
    def seconds_per_sample(self) -> float:
        return self.seconds_per_step / self.learner.now

    def add_noise(self, found: NoiseSample) -> None:
        self.history.over_training.append(_place_noise(self.learner, found))

    def step(self) -> None:
        started = time.perf_counter()
        self.learner.step(self.learner.now)
        self.learner.clock()  # waits for a GPU
        self.seconds_per_step = min(self.seconds_per_step, time.perf_counter() - started)

    def observed_step(self) -> None:
        """A step with the curvature before it and its stride."""
        learner = self.learner
        step, epochs, lr = learner.steps + 1, learner.epochs, learner.lr()
        try:
            curved = lipschitz(learner.model, learner.probed.loss, *self._fixed, exact=False)
            self.history.lipschitz.append(CurvaturePoint(step, epochs, lr, curved.finite, curved.radius))
        except Unmeasurable as problem:
            if str(problem) not in self.warnings:
                self.warnings.append(str(problem))
        with stride(learner.model, learner.optimizer) as moved:
            loss = learner.step(learner.now)
        self.history.strides.append(StridePoint(step, epochs, lr, moved.stride, moved.normalised, loss))
        self.layer_strides = moved.layers


def _train(training: ObservedTraining, seconds: float, given_steps: int | None) -> int:
    """Train through the warm-up and some more, as far as time allows, or the given steps; return their number.

    The noise is measured ever more rarely, since it changes most at the beginning, and for at most a quarter of
    the time.
    """
    learner = training.learner
    started = time.perf_counter()
    before = learner.steps
    wanted = _count_wanted_steps(learner) if given_steps is None else given_steps
    noise_at = {0} | {wanted >> place for place in range(1, _NOISE_POINTS - 1)}
    observe_at = {round(place * (wanted - 1) / (_OBSERVED_STEPS - 1)) for place in range(_OBSERVED_STEPS)}
    with preserve_model(learner.model):  # raises a Problem if the gradient is not finite
        learner.probed.objective(learner.probed.fixed_indices(8)).gradient()
    with learner.undo_steps():  # the second step shows how long a step takes
        training.step()
        training.step()
    noise_seconds = 0.0
    for number in range(wanted):
        now = time.perf_counter()
        if given_steps is None and number >= _FEWEST_STEPS and now - started > seconds:
            break
        expected = count_quick_samples(learner) * training.seconds_per_sample if number in noise_at else math.inf
        if noise_seconds + expected < seconds / 4:
            training.add_noise(sample_noise_quickly(learner))
            noise_seconds += time.perf_counter() - now
        if number in observe_at:
            training.observed_step()
        else:
            training.step()
    trained = learner.steps - before
    if not trained:  # a checkpoint is not changed
        with learner.undo_steps():
            training.observed_step()
    if not learner.warmup_is_over:
        training.warnings.append(
            f"the warm-up of {learner.warmup_epochs:g} epochs was not over after {learner.epochs:.2g}: "
            f"give more --seconds or --steps"
        )
    return trained


def _count_wanted_steps(learner: Learner) -> int:
    if learner.warmup_is_over and learner.steps >= _ENOUGH_STEPS:
        return 0
    warmup = math.ceil(max(0.0, learner.warmup_epochs - learner.epochs) * learner.samples_per_epoch / learner.now)
    most, least = _STEPS_AFTER_WARMUP
    whole = math.inf if learner.total_samples is None else learner.total_samples / learner.now
    after = min(most, max(least, whole / 10))
    return int(max(0, min(warmup + after, whole - learner.steps, _MOST_STEPS)))


def _measure_initialisations(training: ObservedTraining, seconds: float) -> list[NoisePoint]:
    """The noise scale after as many steps from other initial weights, or after as many as there is time for."""
    learner = training.learner
    found: list[NoisePoint] = []
    affordable = seconds / _MORE_INITIALISATIONS / training.seconds_per_step  # steps, with those for the noise
    steps = min(learner.steps, int(affordable - count_quick_samples(learner) / learner.now))
    for number in range(1, 1 + _MORE_INITIALISATIONS):
        if steps < 1 or not learner.initialise(number):
            break
        for _ in range(steps):
            learner.step(learner.now)
        found.append(_place_noise(learner, sample_noise_quickly(learner)))
    return found


# -- the rest


def _backward(learner: Learner, samples: int) -> None:
    indices = torch.arange(samples) % len(learner.probed.samples)
    with preserve_model(learner.model):
        learner.probed.objective(indices).gradient()


def _summarize_tensors(learner: Learner, found: NoiseSample, strides: dict[str, float]) -> list[TensorSummary]:
    rows = []
    for name, parameter in trainable_parameters(learner.model).items():
        own = found.layers[name]
        weight = float(parameter.detach().double().norm())
        gradient_norm = math.sqrt(max(0.0, own.signal + own.noise / learner.now))
        ratio = weight / gradient_norm if gradient_norm else None
        stride_now = strides.get(name)
        shape = parameter.dim(), parameter.numel()
        rows.append(
            TensorSummary(name, *shape, weight, gradient_norm, ratio, own.whole, stride_now, own.noise, own.signal)
        )
    return rows
