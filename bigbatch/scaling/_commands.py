"""What the commands of `bigbatch scale` do, as functions."""

from __future__ import annotations

import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bigbatch.errors import Notice, Problem
from bigbatch.scaling import finish_report, published_report, report, simulation, training_time, workload
from bigbatch.scaling import published as points_of_others
from bigbatch.scaling.machine import Machine, find
from bigbatch.scaling.published import PublishedComparison

if TYPE_CHECKING:
    from bigbatch.commands.scale import Simulated
    from bigbatch.scaling.measured.asked import Asked
    from bigbatch.scaling.measured.measurement import Measurement


def measure(question: Asked, out: Path | None) -> Measurement:
    """Real steps of one model, printed; with `out`, written."""
    from bigbatch.scaling.measured import measurement, shown, written

    found = measurement.measure(question, said=lambda line: print(line, file=sys.stderr), calibrate=out is not None)
    shown.show(found)
    if out is not None:
        print(written.write(found, _checked(), out, _command())[-1])
    if found.stopped:
        raise KeyboardInterrupt
    return found


def simulate(model: str, told: Simulated, *, engines: Sequence[str], picture: int | None) -> report.Simulation:
    """Curves of one model for some engines, printed; where told so, written."""
    names = list(dict.fromkeys(name for listed in engines for name in listed.split(",") if name))
    if not names:
        raise Problem("no engine was named: use --engine ddp, horovod or ddp,horovod")
    options = _options(told.settings or [], names)
    configs = {name: simulation.configure_engine(name, options[name]) for name in names}
    machine = find(told.machine).with_settings(options["machine"])
    ranks = simulation.counts(told.to, told.points, machine.ranks_per_node)
    pictured = told.to if picture is None else picture
    if not 1 <= pictured <= simulation.MOST_RANKS:
        raise Problem(f"--picture {pictured} makes no sense: use a number of ranks from 1 on")
    _warn_beyond(machine, told.to)
    started = time.process_time()
    profile = _profiles(model, told, machine, options["model"])(told.batch)
    curves = simulation.curve(profile, configs, machine, ranks)
    found = report.Simulation(
        profile=profile,
        machine=machine,
        settings={name: simulation.StepSimulator(profile, name, config, machine) for name, config in configs.items()},
        curves=curves,
        pictured_ranks=pictured,
        cpu_seconds=time.process_time() - started,
    )
    report.show(found)
    if told.out is not None:
        written = report.write(found, _checked(), told.out, _command())
        print(written[-1])
    return found


def plan(
    model: str, told: Simulated, *, global_batch: int, noise_scale: str, engine: str
) -> list[training_time.Choice]:
    """The number of ranks with the best time to finish, printed; where told so, written."""
    if global_batch < 1:
        raise Problem(f"--global-batch {global_batch} makes no sense: use the batch of your training, 1 or more")
    options = _options(told.settings or [], [engine])
    config = simulation.configure_engine(engine, options[engine])
    machine = find(told.machine).with_settings(options["machine"])
    noise = training_time.noise(noise_scale)
    ranks = simulation.counts(told.to, told.points, machine.ranks_per_node)
    _warn_beyond(machine, told.to)
    profiles = _profiles(model, told, machine, options["model"])
    planner = training_time.Planner(
        profiles=profiles,
        engine=engine,
        config=config,
        machine=machine,
        global_batch=global_batch,
        most_rank_batch=told.batch,
        noise=noise,
    )
    choices = planner.choices(ranks)
    words = finish_report.words_for(choices, told.to)
    finish_report.show(choices, words)
    if told.out is not None:
        about = {
            "simulated": True,
            "model": model,
            "machine": machine.name,
            "engine": engine,
            "global_batch": global_batch,
            "most_rank_batch": told.batch,
            "noise_scale": noise.scale,
            "times": profiles(told.batch).source,
        }
        print(finish_report.write(choices, words, about, told.out, _command())[-1])
    return choices


def published(out: Path | None) -> list[PublishedComparison]:
    """Every published point beside the simulated one."""
    checked = _checked()
    published_report.show(checked)
    if out is not None:
        for path in published_report.write(checked, out, _command()):
            print(path)
    return checked


def _checked() -> list[PublishedComparison]:
    return points_of_others.check(workload.imagenet_layers)


def _options(settings: Sequence[str], engines: Sequence[str]) -> dict[str, dict[str, object]]:
    for name in engines:
        simulation.configure_engine(name, {})  # an unknown engine is named before its settings are
    return workload.group_settings(settings, engines)


def _profiles(model: str, told: Simulated, machine: Machine, options: dict[str, object]) -> workload.Profiles:
    """What a rank does with so many samples."""
    return workload.profiles(
        model,
        machine,
        options=options,
        sample_shape=workload.parse_sample_shape(told.sample),
        classes=told.classes,
        rank_batch=told.batch,
        samples_per_second=told.samples_per_second,
    )


def _warn_beyond(machine: Machine, to: int) -> None:
    if to > machine.ranks:
        warnings.warn(
            Notice(
                f"machine '{machine.name}' has {machine.ranks:,} ranks: beyond them the numbers are those of a larger "
                "machine with the same nodes and links"
            ),
            stacklevel=2,
        )


def _command() -> str:
    return shlex.join(["bigbatch", *sys.argv[1:]])
