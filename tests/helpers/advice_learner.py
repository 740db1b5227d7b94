"""A learner whose weights do not move, and what is measured of it with step times that are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from analytic import half_square
from torch import nn

from bigbatch.advice.costs import StepTimes
from bigbatch.advice.history import History
from bigbatch.advice.learner import ModuleLearner, ModuleTraining
from bigbatch.advice.measurement import AdviceOptions, MeasurementResults, measure_learner

STANDSTILL = {"optimizer": "sgd", "lr": 1e-12}
SIZES = (16, 32, 64, 128, 256)


def learner_of(model: nn.Module, data: Any, loss: Any = half_square, **changed: Any) -> ModuleLearner:
    return ModuleLearner(model, loss, data, ModuleTraining(**(STANDSTILL | {"batch": 64} | changed)))


def found_of(learner: ModuleLearner, fixed_seconds: float, seconds_per_sample: float) -> MeasurementResults:
    """What is measured, but with step times that are known."""
    found = measure_learner(learner, AdviceOptions(seconds=2.0, steps=2, batches=[8, 16, 32]), History())
    exact = fixed_seconds + seconds_per_sample * np.asarray(SIZES, float)
    return replace(found, step_times=StepTimes.fit(SIZES, np.stack([exact] * 3)))
