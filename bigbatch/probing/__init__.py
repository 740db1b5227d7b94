"""Probing: measure a recipe's new model, or a run at its newest checkpoint, without training it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bigbatch import engines, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Problem
from bigbatch.probes import DEFAULT
from bigbatch.probes.measurement.contract import Row
from bigbatch.probes.measurement.record import Record
from bigbatch.probing.run_at_rest import RunAtRest
from bigbatch.recipes import load_run
from bigbatch.run import Run
from bigbatch.settings import parse_value
from bigbatch.trust import trust_typed

__all__ = ["ProbeReport", "RunAtRest", "load_recipe_or_folder", "probe_run"]


@dataclass(frozen=True)
class ProbeReport(Record):
    """The measurements of some probes at one point of a run."""

    of: str
    step: int
    samples_seen: int
    global_batch: int
    seed: int
    probes: dict[str, Row]


def probe_run(
    recipe_or_run: str,
    *,
    names: Sequence[str] = DEFAULT,
    settings: Iterable[str] = (),
    options: Iterable[str] = (),
    data_dir: Path | None = None,
) -> ProbeReport:
    """Measure with some probes (`names`, each may be a list with commas).

    A run's folder is measured at its newest checkpoint, and only read; a recipe's name, mypkg.mod:function or a
    run.json gives a model as training would begin with it. `settings` change the recipe, as in `bigbatch train --set`;
    `options` are PROBE.NAME=VALUE, like gradient.layer=head. Under torchrun every rank calls this.
    """
    run, folder = load_recipe_or_folder(recipe_or_run, settings)
    configs = _configure_probes(names, options)
    run = engines.fit_run_to_ranks(run)
    engine = engines.start(run.engine)
    try:
        at_rest = RunAtRest(run, engine, folder, data_dir)
        try:
            measurements = {config.name: at_rest.measure(config) for config in configs}
        finally:
            at_rest.close()
    finally:
        engine.stop()
    return ProbeReport(
        of=str(folder.path) if folder else run.name,
        step=at_rest.position.step,
        samples_seen=at_rest.position.samples,
        global_batch=at_rest.batch.global_batch,
        seed=run.seed,
        probes=measurements,
    )


def load_recipe_or_folder(recipe_or_run: str, settings: Iterable[str]) -> tuple[Run, Folder | None]:
    """A run by its recipe, or by the folder of its training."""
    path = Path(recipe_or_run)
    if not path.is_dir():
        return load_run(recipe_or_run, settings), None
    if list(settings):
        raise Problem(f"{path} is a run, whose settings cannot be changed: leave --set out, or give a recipe")
    folder = Folder(path)
    return folder.run(), folder


def _configure_probes(names: Sequence[str], options: Iterable[str]) -> list[parts.Config]:
    """Each probe with its options."""
    fields = {name: {"name": name} for listed in names for name in listed.split(",") if name}
    for option in options:
        path, equals, text = option.partition("=")
        name, dot, field = path.rpartition(".")
        if not equals or not dot:
            raise Problem(f"'{option}' is not an option of a probe: write PROBE.NAME=VALUE, like gradient.layer=head")
        if name not in fields:
            raise Problem(f"'{option}' is for '{name}', which is not measured: add --probe {name}, or leave it out")
        fields[name][field] = parse_value(text)
    trust_typed(fields)
    if not fields:
        raise Problem(f"no probe was named: use --probe with some of {', '.join(parts.names('probes'))}")
    return [parts.configure("probes", about) for about in fields.values()]
