"""`bigbatch scale`: how a training runs on the ranks that there are, and would run on more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from bigbatch.errors import DONE

command = App(name="scale", help="Measure and predict how a training scales over ranks.")

Engines = Annotated[list[str] | None, Parameter(name="--engine", negative="", help="ddp, horovod or ddp,horovod")]
MachineName = Annotated[
    str, Parameter(help="summit, pascal, dgx1, here, or a description ending in .json or .toml; see 'scale machine'")
]
RankBatch = Annotated[int, Parameter(help="samples a rank takes in one pass")]
Sample = Annotated[str, Parameter(help="the shape of a sample, like 3,32,32; one number is a text of that many words")]
Classes = Annotated[int, Parameter(help="of the labels, or words of the vocabulary")]
Speed = Annotated[
    float | None, Parameter(help="what one rank alone was measured to do; sets the sum of the layers' times")
]
ScaleSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set", negative="", help="like model.depth=101, horovod.cycle_ms=5, machine.links.algorithms=ring"
    ),
]
Out = Annotated[Path | None, Parameter(help="a folder for a page, pictures, JSON and CSV")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What `simulate` and `plan` both are told."""

    to: Annotated[int, Parameter(help="the largest number of ranks")] = 6144
    points: Annotated[int, Parameter(help="how many numbers of ranks up to there")] = 16
    machine: MachineName = "summit"
    batch: RankBatch = 64
    sample: Sample = "3,224,224"
    classes: Classes = 1000
    samples_per_second: Speed = None
    settings: ScaleSettings = None
    out: Out = None


_DEFAULTS = Simulated()


@command.command
def measure(
    model: str,
    *,
    engines: Annotated[
        str | None, Parameter(help="some of local,ddp,fsdp,horovod; else local, ddp and, where it is built, horovod")
    ] = None,
    ranks: Annotated[str, Parameter(help="numbers of ranks, like 1,2")] = "1,2",
    batch: RankBatch = 8,
    sample: Sample = "3,32,32",
    classes: Classes = 10,
    rounds: Annotated[int, Parameter(help="how often each configuration is started anew")] = 5,
    steps: Annotated[int, Parameter(help="timed steps of each start")] = 10,
    hosts: Annotated[
        str, Parameter(help="other machines, like node1,node2, through ssh or srun; netns:NAME is a namespace of this")
    ] = "",
    sweep: Annotated[
        bool, Parameter(negative="", help="DDP's bucket cap, Horovod's cycle time and fusion buffer too")
    ] = False,
    settings: Annotated[
        list[str] | None, Parameter(name="--set", negative="", help="like model.depth=32, ddp.bucket_mb=1")
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="a folder for a page, JSON, CSV, and machine.json for 'scale simulate --machine'")
    ] = None,
) -> int:
    """Measure training steps on real ranks: weak and strong scaling, what a step consists of, efficiency.

    MODEL is a model part ('bigbatch list models'). With --out this machine is calibrated as well, and the
    simulator's steps are set beside the measured ones.
    """
    from bigbatch.scaling import _commands, workload
    from bigbatch.scaling.measured import asked

    question = asked.asked(
        model,
        engines=engines,
        ranks=ranks,
        rank_batch=batch,
        sample_shape=workload.parse_sample_shape(sample),
        classes=classes,
        rounds=rounds,
        steps=steps,
        hosts=hosts,
        sweep=sweep,
        settings=settings or [],
        out=out,
    )
    _commands.measure(question, out)
    return DONE


@command.command
def simulate(
    model: str,
    *,
    engine: Engines = None,
    picture: Annotated[int | None, Parameter(help="the number of ranks whose step is drawn; else the largest")] = None,
    told: Simulated = _DEFAULTS,
) -> int:
    """Simulate a model's step on 1 to many ranks: time, exposed communication, efficiency with its band.

    MODEL is a model part ('bigbatch list models'), vgg16, inception3, or a .csv of layers with their times.
    """
    from bigbatch.scaling import _commands

    _commands.simulate(model, told, engines=engine or ["ddp,horovod"], picture=picture)
    return DONE


@command.command
def plan(
    model: str,
    *,
    global_batch: Annotated[int, Parameter(help="the global batch of now")],
    noise_scale: Annotated[str, Parameter(help="a number of samples, or the JSON that 'bigbatch advise' wrote")],
    engine: Annotated[str, Parameter(help="ddp or horovod")] = "ddp",
    told: Simulated = _DEFAULTS,
) -> int:
    """Find the number of ranks that ends a training first, from the simulator and the noise scale."""
    from bigbatch.scaling import _commands

    _commands.plan(model, told, global_batch=global_batch, noise_scale=noise_scale, engine=engine)
    return DONE


@command.command
def trace(
    model: str,
    *,
    engines: Annotated[
        list[str] | None,
        Parameter(negative="", help="some of local,ddp,fsdp,horovod; else ddp and, where it is built, horovod"),
    ] = None,
    ranks: Annotated[int, Parameter(help="processes on this machine")] = 2,
    batch: RankBatch = 8,
    sample: Sample = "3,32,32",
    classes: Classes = 10,
    steps: Annotated[int, Parameter(help="that are traced, after some that warm up")] = 3,
    settings: Annotated[
        list[str] | None, Parameter(name="--set", negative="", help="like model.depth=20, horovod.cycle_ms=5")
    ] = None,
    out: Annotated[Path, Parameter(help="a folder for the trace, pictures and a page")],
) -> int:
    """Run a few real steps of each engine and see what happens when: a trace for Perfetto, a picture of one step.

    MODEL is a model part ('bigbatch list models').
    """
    from bigbatch.scaling.trace import command as tracing

    tracing.trace(
        model,
        engines=engines or [],
        ranks=ranks,
        rank_batch=batch,
        sample=sample,
        classes=classes,
        steps=steps,
        settings=settings or [],
        out=out,
    )
    return DONE


@command.command
def published(
    *, out: Annotated[Path | None, Parameter(help="a folder for published.md and published.csv")] = None
) -> int:
    """Compare the simulator with efficiencies that others measured, and print each error."""
    from bigbatch.scaling import _commands

    _commands.published(out)
    return DONE


@command.command
def machine(name: str) -> int:
    """Print a machine's description as JSON: a start for one of your own."""
    from bigbatch.scaling.machine import find

    print(find(name).model_dump_json(indent=2))
    return DONE
