"""`bigbatch scale`: measure how a training scales over ranks, and predict it for more."""

from __future__ import annotations

import math
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from bigbatch.errors import DONE, Notice

if TYPE_CHECKING:
    from bigbatch.scaling.machine import Machine
    from bigbatch.scaling.workload import ProfileAtBatch

command = App(name="scale", help="Measure and predict how a training scales over ranks.")

AT_LEAST_1 = Number(gte=1)
MOST_RANKS = MOST_RANK_BATCH = 10_000_000
MOST_TRACED_STEPS = 100  # a trace records everything in a step
Engines = Annotated[
    list[str] | None,
    Parameter(name=("--engines", "--engine"), negative="", help="like ddp,horovod; default: all that can be used"),
]
Classes = Annotated[int, Parameter(help="number of classes, or words in the vocabulary")]
Out = Annotated[Path | None, Parameter(help="folder for a page, figures, JSON and CSV")]
RankBatch = Annotated[int, Parameter(validator=Number(gte=1, lte=MOST_RANK_BATCH), help="samples per rank in one pass")]
RankCount = Annotated[int, Parameter(validator=Number(gte=1, lte=MOST_RANKS))]
Sample = Annotated[str, Parameter(help="shape of a sample, like 3,32,32; one number is a text of that many words")]
ScaleSettings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="like model.depth=32, horovod.cycle_ms=5, machine.links.algorithms=ring"),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RealModel:
    """The model whose steps `measure` and `trace` run."""

    batch: RankBatch = 8
    sample: Sample = "3,32,32"
    classes: Classes = 10
    settings: ScaleSettings = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SimulatedRanks:
    """The options that `simulate` and `plan` share."""

    to: Annotated[RankCount, Parameter(help="largest number of ranks")] = 6144
    points: Annotated[int, Parameter(validator=AT_LEAST_1, help="how many numbers of ranks up to there")] = 16
    machine: Annotated[
        str, Parameter(help="summit, pascal, dgx1, here, or a .json or .toml description; see 'scale machine'")
    ] = "summit"
    batch: RankBatch = 64
    sample: Sample = "3,224,224"
    classes: Classes = 1000
    samples_per_second: Annotated[
        float | None, Parameter(validator=Number(gt=0, lt=math.inf), help="measured throughput of one rank alone")
    ] = None
    settings: ScaleSettings = None
    out: Out = None

    def build(self, model: str, settings: dict[str, dict[str, Any]]) -> tuple[Machine, list[int], ProfileAtBatch]:
        """Return the machine, the numbers of ranks, and the profile of a step by its batch per rank."""
        from bigbatch.scaling import simulation, workload
        from bigbatch.scaling.machine import find_machine

        machine = find_machine(self.machine).with_settings(settings["machine"])
        if self.to > machine.ranks:
            warnings.warn(
                Notice(
                    f"machine '{machine.name}' has {machine.ranks:,} ranks: results for more are those of a larger "
                    "machine with the same nodes and links"
                ),
                stacklevel=2,
            )
        ranks = simulation.rank_counts(self.to, self.points, machine.ranks_per_node)
        sample_shape = workload.parse_sample_shape(self.sample)
        described = workload.Workload(model, settings["model"], sample_shape, self.classes)
        return machine, ranks, described.profiles(machine, self.batch, self.samples_per_second)


_REAL_MODEL, _SIMULATED_RANKS = RealModel(), SimulatedRanks()


@command.command
def measure(
    model: str,
    *,
    engines: Engines = None,
    ranks: Annotated[str, Parameter(help="numbers of ranks, like 1,2")] = "1,2",
    rounds: Annotated[int, Parameter(validator=AT_LEAST_1, help="how often each configuration is started")] = 5,
    steps: Annotated[int, Parameter(validator=AT_LEAST_1, help="timed steps of each start")] = 10,
    hosts: Annotated[
        str, Parameter(help="other machines, like node1,node2, through ssh or srun; netns:NAME is a local namespace")
    ] = "",
    sweep: Annotated[
        bool, Parameter(negative="", help="also vary DDP's bucket cap, Horovod's cycle time and fusion buffer")
    ] = False,
    options: RealModel = _REAL_MODEL,
    out: Annotated[
        Path | None, Parameter(help="folder for a page, JSON, CSV, and machine.json for 'scale simulate --machine'")
    ] = None,
) -> int:
    """Measure training steps on real ranks: weak and strong scaling, the phases of a step, efficiency.

    MODEL is a model part ('bigbatch list models'). With --out this machine is calibrated too, and simulated steps are
    compared with the measured ones.
    """
    from bigbatch.scaling.measurement.measurement import measure as measure_steps
    from bigbatch.scaling.measurement.report import print_measurement, write_report
    from bigbatch.scaling.measurement.request import MeasurementOptions, build_request
    from bigbatch.scaling.published import compare_published

    request = build_request(
        MeasurementOptions(
            model=model,
            engines=engines or (),
            ranks=ranks,
            rank_batch=options.batch,
            sample=options.sample,
            classes=options.classes,
            rounds=rounds,
            steps=steps,
            hosts=hosts,
            sweep=sweep,
            settings=options.settings or (),
            out=out,
        )
    )
    found = measure_steps(request, lambda line: print(line, file=sys.stderr), calibrate=out is not None)
    print_measurement(found)
    if out is not None:
        print(write_report(found, compare_published(), out, _command_line())[-1])
    if found.interrupted:
        raise KeyboardInterrupt
    return DONE


@command.command
def simulate(
    model: str,
    *,
    engines: Engines = None,
    picture: Annotated[
        RankCount | None, Parameter(help="number of ranks whose step is drawn; default: the largest")
    ] = None,
    options: SimulatedRanks = _SIMULATED_RANKS,
) -> int:
    """Simulate a model's step on 1 to many ranks: time, exposed communication, efficiency with its band.

    MODEL is a model part ('bigbatch list models'), vgg16, inception3, or a .csv of layers with their times.
    """
    from bigbatch.scaling import report, simulation, workload

    names = workload.parse_engines(engines or simulation.ENGINES, simulation.ENGINES)
    settings = workload.group_settings(options.settings or [], names)
    configs = {name: simulation.configure_engine(name, settings[name]) for name in names}
    machine, ranks, profiles = options.build(model, settings)
    found = simulation.simulate(profiles(options.batch), configs, machine, ranks)
    report.print_simulation(found)
    if options.out is not None:
        print(report.write_simulation(found, options.out, _command_line(), picture or options.to))
    return DONE


@command.command
def plan(
    model: str,
    *,
    global_batch: Annotated[int, Parameter(validator=AT_LEAST_1, help="the present global batch")],
    noise_scale: Annotated[str, Parameter(help="a number of samples, or the JSON that 'bigbatch advise' wrote")],
    engine: Annotated[str, Parameter(help="ddp or horovod")] = "ddp",
    options: SimulatedRanks = _SIMULATED_RANKS,
) -> int:
    """Find the number of ranks with the shortest training time, from the simulator and the noise scale."""
    from bigbatch.scaling import report, simulation, workload
    from bigbatch.scaling.training_time import TrainingTimeEstimator, parse_noise_scale

    workload.parse_engines([engine], simulation.ENGINES)
    settings = workload.group_settings(options.settings or [], [engine])
    config, noise = simulation.configure_engine(engine, settings[engine]), parse_noise_scale(noise_scale)
    machine, ranks, profiles = options.build(model, settings)
    times = TrainingTimeEstimator(
        profiles=profiles,
        engine=engine,
        config=config,
        machine=machine,
        global_batch=global_batch,
        most_rank_batch=options.batch,
        noise=noise,
    ).estimate(ranks)
    report.print_plan(times, options.to)
    if options.out is not None:
        about = {
            "simulated": True,
            "model": model,
            "machine": machine.name,
            "engine": engine,
            "global_batch": global_batch,
            "most_rank_batch": options.batch,
            "noise_scale": noise.scale,
            "times": profiles(options.batch).source,
        }
        print(report.write_plan(times, options.to, about, options.out, _command_line()))
    return DONE


@command.command
def trace(
    model: str,
    *,
    engines: Engines = None,
    ranks: Annotated[int, Parameter(validator=AT_LEAST_1, help="processes on this machine")] = 2,
    steps: Annotated[
        int, Parameter(validator=Number(gte=1, lte=MOST_TRACED_STEPS), help="traced steps, after some warm-up steps")
    ] = 3,
    options: RealModel = _REAL_MODEL,
    out: Annotated[Path, Parameter(help="folder for the trace, figures and a page")],
) -> int:
    """Trace a few real steps of each engine: a trace for Perfetto, a figure of one step.

    MODEL is a model part ('bigbatch list models').
    """
    from bigbatch.scaling.tracing import report, trace

    request = trace.TraceOptions(
        model=model,
        engines=engines or (),
        ranks=ranks,
        rank_batch=options.batch,
        sample=options.sample,
        classes=options.classes,
        steps=steps,
        settings=options.settings or (),
        out=out,
    )
    found = trace.trace(request)
    report.print_trace(found)
    print(report.write_report(found, out, _command_line())[-1])
    return DONE


@command.command
def published(
    *, out: Annotated[Path | None, Parameter(help="folder for published.md and published.csv")] = None
) -> int:
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
