"""Learning rates and warm-up at another batch, and the baseline of a run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from bigbatch.advice import learning_rates
from bigbatch.probes.measurement.record import to_json
from bigbatch.recipes import load_run
from bigbatch.schedules import Baseline


def test_lrs_of_three_rules_by_hand():
    """k = 16: LEGW 4 times the learning rate and 16 times the warm-up; linear 16 times the learning rate."""
    layers = [
        SimpleNamespace(weight=2.0, signal=0.01, noise=40.96, dimensions=2),  # ‖g‖² = .01 + .02 = .03
        SimpleNamespace(weight=3.0, signal=0.05, noise=81.92, dimensions=4),  # ‖g‖² = .05 + .04 = .09
        SimpleNamespace(weight=9.0, signal=1.0, noise=1.0, dimensions=1),
    ]
    found = learning_rates.scale_schedule(2048, Baseline(0.1, 128, 0.1), layers, weight_decay=0.0, total_epochs=4.0)
    assert to_json(found["legw"]) == pytest.approx({"lr": 0.4, "warmup_epochs": 1.6, "too_long": False})
    assert to_json(found["linear"]) == pytest.approx({"lr": 1.6, "warmup_epochs": 5.0, "too_long": True})
    # ‖w‖/‖g‖ is 2/√.03 = 11.547 and 3/.3 = 10: the median 10.774
    assert found["lars"].trust_coefficient == pytest.approx(1 / 10.7735, rel=1e-4)
    with_decay = learning_rates.trust_coefficient(2048, layers, weight_decay=0.1)
    assert with_decay == pytest.approx(2 / (2 / (math.sqrt(0.03) + 0.2) + 3 / (0.3 + 0.3)))


@pytest.mark.parametrize(
    ("recipe", "settings", "baseline", "warmup_epochs"),
    [
        ("digits", [], Baseline(0.02, 16, 0.0), 0.0),
        ("legw_mnist", ["global_batch=1024"], Baseline(0.1, 128, 0.1), 0.8),
        ("digits", ['schedule={"name": "goyal", "baseline_batch": 32}'], Baseline(0.02, 32, 5.0), 5.0),
        (
            "digits",
            ['schedule={"name": "composed", "warmup": {"kind": "gradual", "epochs": 2}}'],
            Baseline(0.02, 16, 2.0),
            2.0,
        ),
    ],
)
def test_the_baseline_is_the_runs_own(recipe, settings, baseline, warmup_epochs):
    run = load_run(recipe, settings)
    now = run.global_batch.global_batch
    assert learning_rates.baseline_of(run, now) == baseline
    assert learning_rates.warmup_epochs(run, now) == pytest.approx(warmup_epochs)
