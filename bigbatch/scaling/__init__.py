"""How a data-parallel step scales with the number of ranks: measured on those at hand, simulated for more.

    profile.py     what one rank computes in a step: layers with their times and gradients
    workload.py    the model that a user names and its engines; shapes.py finds the layers of a model part,
                   networks.py those of networks.toml, layer_timing.py measures times on this machine
    machine.py     nodes, links, devices, jitter: descriptions in machines/, or read from a file
    allreduce.py   the time of one all-reduce (NCCL's ring and tree, or measured times)
    ddp.py, horovod.py   which gradients are summed together, and when
    shared_cores.py      computing and communicating on the same cores
    step.py        one simulated step, and the engine that simulates it; phases.py is the record of any step
    simulation.py  scaling curves: many numbers of ranks, the band of the jitter, the cost of each term
    published.py   published efficiencies (published.toml) beside simulated ones
    training_time.py     the number of ranks with the shortest training
    report.py      what is printed and written
    measurement/, tracing/   real steps of real engines: timed, and recorded by profilers
    options.py     the options of the commands; stepper.py and recording.py take real steps
    worker.py      the program of each rank; ranks.py and hosts.py start it

Times are microseconds, sizes bytes. The simulator is plain Python; only shapes.py and real steps need torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigbatch.scaling.machine import find_machine as find_machine
    from bigbatch.scaling.published import compare_published as compare_published
    from bigbatch.scaling.simulation import configure_engine as configure_engine
    from bigbatch.scaling.simulation import rank_counts as rank_counts
    from bigbatch.scaling.simulation import simulate as simulate
    from bigbatch.scaling.training_time import TrainingTimeEstimator as TrainingTimeEstimator
    from bigbatch.scaling.workload import Workload as Workload

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
