"""What `bigbatch scale trace` does, as a function."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.errors import Notice, Problem, did_you_mean
from bigbatch.launch import processes
from bigbatch.run import Run
from bigbatch.scaling import networks, workload
from bigbatch.scaling.measured import stepper
from bigbatch.scaling.shapes import build_model
from bigbatch.scaling.trace import ranks as started
from bigbatch.scaling.trace import report

MOST_STEPS = 100


def trace(
    model: str,
    *,
    engines: Sequence[str],
    ranks: int,
    rank_batch: int,
    sample: str,
    classes: int,
    steps: int,
    settings: Sequence[str],
    out: Path,
) -> report.Traced:
    """Real steps of each engine, printed and written. All is checked before anything is started."""
    names = _checked_engines(engines)
    if ranks < 1:
        raise Problem(f"--ranks {ranks} makes no sense: use 1 or more")
    if not 1 <= steps <= MOST_STEPS:
        raise Problem(f"--steps {steps} makes no sense: use 1 to {MOST_STEPS}; a trace holds everything a step does")
    atomic.check_writable(out)
    sample_shape = workload.parse_sample_shape(sample)
    options = workload.group_settings(settings, names)
    if options["machine"]:
        raise Problem(f"machine.{next(iter(options['machine']))} is for a simulation, and this runs here: leave it out")
    if model in networks.NETWORKS or model.endswith(".csv"):
        raise Problem(f"'{model}' is a table of layers and cannot be run: name a model ('bigbatch list models')")
    build_model(model, options["model"], sample_shape, classes, samples=1)  # says what is wrong with it, if anything is
    runs = {name: _run(name, model, options, ranks, rank_batch, sample_shape, classes) for name in names}
    for name in names:
        processes.rank_command(name, ranks, "", [])  # says if Horovod is missing
    if ranks > (os.cpu_count() or 1):
        warnings.warn(
            Notice(f"{ranks} ranks on {os.cpu_count()} cores take turns: what waits there waits for a core"),
            stacklevel=2,
        )
    recordings, loads = [], []
    for name, run in runs.items():
        loads.append(os.getloadavg()[0])
        recordings.append(started.recorded(run, 1 if name == "local" else ranks, steps))
    label = " ".join([model, *(f"{option}={value}" for option, value in options["model"].items())])
    found = report.Traced(label, rank_batch, sample_shape, recordings, loads, {name: options[name] for name in names})
    report.show(found)
    print(report.write(found, out, shlex.join(["bigbatch", *sys.argv[1:]]))[-1])
    return found


def _checked_engines(engines: Sequence[str]) -> list[str]:
    if not engines:
        return ["ddp", *(["horovod"] if find_spec("horovod") else [])]
    names = list(dict.fromkeys(name for listed in engines for name in listed.split(",") if name))
    if not names:
        raise Problem("no engine was named: use --engines ddp, or ddp,horovod")
    for name in names:
        if name not in parts.names("engines"):
            known = parts.names("engines")
            raise Problem(f"no engine called '{name}'{did_you_mean(name, known)} Use {', '.join(known)}")
    return names


def _run(
    name: str,
    model: str,
    options: dict[str, dict[str, object]],
    ranks: int,
    rank_batch: int,
    sample_shape: tuple[int, ...],
    classes: int,
) -> Run:
    return stepper.run_of(
        {"name": model, **options["model"]},
        {"name": name, **options[name]},
        ranks=1 if name == "local" else ranks,
        rank_batch=rank_batch,
        sample_shape=sample_shape,
        classes=classes,
    )
