"""`bigbatch scale`: how a training would run on more ranks than there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from bigbatch.commands._options import DONE

command = App(name="scale", help="Predict how a training scales over ranks.")

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


@command.command
def simulate(
    model: str,
    *,
    engine: Engines = None,
    to: Annotated[int, Parameter(help="the largest number of ranks")] = 6144,
    points: Annotated[int, Parameter(help="how many numbers of ranks up to there")] = 16,
    machine: MachineName = "summit",
    batch: RankBatch = 64,
    sample: Sample = "3,224,224",
    classes: Classes = 1000,
    samples_per_second: Speed = None,
    picture: Annotated[int | None, Parameter(help="the number of ranks whose step is drawn; else the largest")] = None,
    settings: ScaleSettings = None,
    out: Out = None,
) -> int:
    """Simulate a model's step on 1 to many ranks: time, exposed communication, efficiency with its band.

    MODEL is a model part ('bigbatch list models'), vgg16, inception3, or a .csv of layers with their times.
    """
    from bigbatch.scaling import _commands

    _commands.simulate(
        model,
        engines=engine or ["ddp,horovod"],
        to=to,
        points=points,
        machine_name=machine,
        rank_batch=batch,
        sample=sample,
        classes=classes,
        samples_per_second=samples_per_second,
        picture=picture,
        settings=settings or [],
        out=out,
    )
    return DONE


@command.command
def plan(
    model: str,
    *,
    global_batch: Annotated[int, Parameter(help="the global batch of now")],
    noise_scale: Annotated[str, Parameter(help="a number of samples, or the JSON that 'bigbatch advise' wrote")],
    engine: Annotated[str, Parameter(help="ddp or horovod")] = "ddp",
    to: Annotated[int, Parameter(help="the largest number of ranks")] = 6144,
    points: Annotated[int, Parameter(help="how many numbers of ranks up to there")] = 16,
    machine: MachineName = "summit",
    batch: RankBatch = 64,
    sample: Sample = "3,224,224",
    classes: Classes = 1000,
    samples_per_second: Speed = None,
    settings: ScaleSettings = None,
    out: Out = None,
) -> int:
    """Find the number of ranks that ends a training first, from the simulator and the noise scale."""
    from bigbatch.scaling import _commands

    _commands.plan(
        model,
        global_batch=global_batch,
        noise_scale=noise_scale,
        engine=engine,
        to=to,
        points=points,
        machine_name=machine,
        rank_batch=batch,
        sample=sample,
        classes=classes,
        samples_per_second=samples_per_second,
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
