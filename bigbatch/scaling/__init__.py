"""How a data-parallel step scales with the number of ranks: measured on those at hand, simulated for more.

    profile.py     what one rank computes in a step: layers with their times and gradients
    workload.py    the model that a user names and its engines; layers.py finds or times the layers of a model part
    machine.py     nodes, links, devices, jitter: descriptions in machines/, or read from a file
    allreduce.py   the time of one all-reduce (NCCL's ring and tree, or measured times)
    ddp.py, horovod.py   which gradients are summed together, and when
    step.py        one simulated step, also on cores that compute and communicate; phases.py is the record of any step
    simulation.py  scaling curves: many numbers of ranks, the band of the jitter, the cost of each term
    published.py   published efficiencies (published.toml) beside simulated ones
    training_time.py     the number of ranks with the shortest training
    report.py      what is printed and written
    measurement/   real steps of real engines, timed: request, rounds, calibration of this machine, efficiencies, report
    tracing/       real steps recorded by profilers: spans, the Chrome trace, the figure of one step
    options.py     the options of the commands; stepper.py records real steps; ranks.py and hosts.py start ranks

Times are microseconds, sizes bytes. The simulator is plain Python; only layers.py and real steps need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "TrainingTimeEstimator": "training_time",
    "Workload": "workload",
    "compare_published": "published",
    "configure_engine": "simulation",
    "find_machine": "machine",
    "rank_counts": "simulation",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    # worker processes import only what they need
    if name in _MODULES:
        return getattr(import_module(f"bigbatch.scaling.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'bigbatch.scaling' has no attribute '{name}'")
