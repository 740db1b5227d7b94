"""`bigbatch scale`: measure how a training scales over ranks, and predict it for more."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from bigbatch.errors import DONE
from bigbatch.scaling.options import MeasurementOptions, PlanOptions, SimulationOptions, TraceOptions

command = App(name="scale", help="Measure and predict how a training scales over ranks.")


@command.command
def measure(options: MeasurementOptions) -> int:
    """Measure training steps on real ranks: weak and strong scaling, the phases of a step, efficiency.

    MODEL is a model part ('bigbatch list models'). With --out this machine is calibrated too, and simulated steps are
    compared with the measured ones.
    """
    from bigbatch.scaling.measurement.measurement import measure
    from bigbatch.scaling.measurement.report import print_measurement, write_report
    from bigbatch.scaling.measurement.request import build_request
    from bigbatch.scaling.published import compare_published

    request = build_request(options)
    found = measure(request, lambda line: print(line, file=sys.stderr), calibrate=options.out is not None)
    print_measurement(found)
    if options.out is not None:
        print(write_report(found, compare_published(), options.out, _command_line())[-1])
    if found.interrupted:
        raise KeyboardInterrupt
    return DONE


@command.command
def simulate(options: SimulationOptions) -> int:
    """Simulate a model's step on 1 to many ranks: time, exposed communication, efficiency with its band.

    MODEL is a model part ('bigbatch list models'), vgg16, inception3, or a .csv of layers with their times.
    """
    from bigbatch.scaling import report
    from bigbatch.scaling.simulation import run_simulation

    found = run_simulation(options)
    report.print_simulation(found)
    if options.out is not None:
        print(report.write_simulation(found, options.out, _command_line(), options.picture or options.to))
    return DONE


@command.command
def plan(options: PlanOptions) -> int:
    """Find the number of ranks with the shortest training time, from the simulator and the noise scale."""
    from bigbatch.scaling import report
    from bigbatch.scaling.training_time import plan_training

    found = plan_training(options)
    report.print_plan(found)
    if options.out is not None:
        print(report.write_plan(found, options.out, _command_line()))
    return DONE


@command.command
def trace(options: TraceOptions) -> int:
    """Trace a few real steps of each engine: a trace for Perfetto, a figure of one step.

    MODEL is a model part ('bigbatch list models').
    """
    from bigbatch.scaling.tracing import report, trace

    found = trace.trace(options)
    report.print_trace(found)
    print(report.write_report(found, options.out, _command_line())[-1])
    return DONE


@command.command
def published(*, out: Annotated[Path | None, Parameter(help="folder for a page and published.csv")] = None) -> int:
    """Compare the simulator with published efficiencies, and print each error."""
    from bigbatch.scaling import report
    from bigbatch.scaling.published import compare_published

    comparisons = compare_published()
    report.print_published(comparisons)
    if out is not None:
        for path in report.write_published(comparisons, out, _command_line()):
            print(path)
    return DONE


@command.command
def machine(name: str) -> int:
    """Print a machine's description as JSON, as a start for your own."""
    from bigbatch.scaling.machine import find_machine

    print(find_machine(name).model_dump_json(indent=2))
    return DONE


def _command_line() -> str:
    return shlex.join(["bigbatch", *sys.argv[1:]])
