"""From what a user asks to what is measured, refused in one sentence before anything is started."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.errors import Notice, Problem, did_you_mean
from bigbatch.scaling import networks, workload
from bigbatch.scaling.measured import hosts as machines
from bigbatch.scaling.measured.cases import Case, Comparison, Subject, Sweep, comparisons, distinct, sweeps
from bigbatch.scaling.measured.rounds import Plan

BY_DEFAULT = ("local", "ddp", "horovod")
BY_DEFAULT_ON_HOSTS = ("local", "ddp")


@dataclass(frozen=True)
class Asked:
    """A measurement, described."""

    subject: Subject
    plan: Plan
    rank_batch: int
    gradient_bytes: int
    ranks: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    sweeps: tuple[Sweep, ...]
    hosts: tuple[str, ...] = ()

    @property
    def cases(self) -> list[Case]:
        compared = [case for one in self.comparisons for case in (one.alone, one.ranks)]
        alone = [Case("local", 1, self.rank_batch)]  # what everything is compared with, asked for or not
        return distinct([*alone, *compared, *(case for one in self.sweeps for case in one.cases)])


def asked(
    model: str,
    *,
    engines: str | None,
    ranks: str,
    rank_batch: int,
    sample_shape: tuple[int, ...],
    classes: int,
    rounds: int,
    steps: int,
    hosts: str,
    sweep: bool,
    settings: Sequence[str],
    out: Path | None,
) -> Asked:
    for name, number in (("--batch", rank_batch), ("--rounds", rounds), ("--steps", steps)):
        if number < 1:
            raise Problem(f"{name} {number} makes no sense: use 1 or more")
    if out is not None:
        atomic.check_writable(out)
    places = tuple(machines.parsed(hosts))
    names = _engines(engines, by_default=BY_DEFAULT_ON_HOSTS if places else BY_DEFAULT)
    if places and "horovod" in names:
        raise Problem("--hosts starts torchrun, which Horovod does not use: leave horovod out of --engines")
    counts = _ranks(ranks)
    options = workload.group_settings(settings, [name for name in names if name != "local"])
    if machine := options.pop("machine"):
        raise Problem(f"machine.{next(iter(machine))} is for a simulation, and this runs here: leave it out")
    what = Subject(model, options.pop("model"), sample_shape, classes, options)
    gradient_bytes = _gradient_bytes(what)
    several = max(counts)
    swept = sweeps(names, several, rank_batch, gradient_bytes) if sweep and several > 1 else []
    found = Asked(
        subject=what,
        plan=Plan(rounds=rounds, timed_steps=steps),
        rank_batch=rank_batch,
        gradient_bytes=gradient_bytes,
        ranks=tuple(counts),
        comparisons=tuple(comparisons(names, counts, rank_batch)),
        sweeps=tuple(swept),
        hosts=places,
    )
    for case in found.cases:
        what.run(case)  # an option that an engine does not have is named now
        if places:
            machines.check_divides(places, case.ranks)
    machines.check(places)
    _warn_beyond_cores(several, places)
    return found


def replaced(question: Asked, chosen: Sequence[Sweep]) -> Asked:
    """The same with sweeps of one's own, and weak scaling alone."""
    weak = tuple(one for one in question.comparisons if one.scaling == "weak")
    return replace(question, sweeps=tuple(chosen), comparisons=weak)


def _engines(text: str | None, by_default: Sequence[str]) -> list[str]:
    known = parts.names("engines")
    names = list(by_default) if text is None else list(dict.fromkeys(name for name in text.split(",") if name))
    if not names:
        raise Problem(f"no engine was named: use --engines with some of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise Problem(f"no engine called '{name}'{did_you_mean(name, known)} Use {', '.join(known)}")
    if "horovod" in names:
        from bigbatch.engines.horovod import check_installed

        try:
            check_installed()
        except Problem as missing:
            if text is not None:
                raise
            warnings.warn(Notice(f"horovod is left out: {missing}"), stacklevel=2)
            names.remove("horovod")
    return names


def _ranks(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise Problem(f"--ranks {text} is no list of numbers: write them with commas, like 1,2") from error
    if counts[0] < 1:
        raise Problem(f"--ranks {text} makes no sense: use 1 or more")
    return counts


def _gradient_bytes(what: Subject) -> int:
    """By building the model once, which also finds out whether it can be."""
    if what.model in networks.NETWORKS or what.model.endswith(".csv"):
        raise Problem(f"'{what.model}' is a table of layers and cannot be run: name a model ('bigbatch list models')")
    from bigbatch.scaling import shapes

    model, _ = shapes.build_model(what.model, what.model_options, what.sample_shape, what.classes, samples=1)
    sizes = [one.numel() * one.element_size() for one in model.parameters() if one.requires_grad]
    if not sizes:
        raise Problem(f"model '{what.model}' has no parameter to learn: name another")
    return sum(sizes)


def _warn_beyond_cores(ranks: int, hosts: Sequence[str]) -> None:
    cores = os.cpu_count() or 1
    if ranks > cores and not hosts:
        warnings.warn(
            Notice(
                f"{ranks} ranks share {cores} cores here: they take turns, so that a step takes longer than it would "
                "on as many cores, and no efficiency can be read from it"
            ),
            stacklevel=2,
        )
