"""Filtering again what a filter has kept: the network is trained anew on what is left (the paper's outlook)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bigbatch import datasets, engines, parts
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters import _manifest, _ranks
from bigbatch.filters._progress import say
from bigbatch.filters._size import refuse_empty_classes
from bigbatch.filters._source import run_of
from bigbatch.run import Run

_SECONDS_TO_WAIT_FOR_A_RANK = 3600.0


@contextmanager
def all_ranks() -> Iterator[None]:
    """Ranks that torchrun started form a group for the filter; an ordinary process is alone."""
    if engines.env_world_size() == 1:
        yield
        return
    config = parts.configure("engines", {"name": "ddp", "timeout_seconds": _SECONDS_TO_WAIT_FOR_A_RANK})
    engine = engines.start(config)
    try:
        yield
    finally:
        engine.stop()


def filtered(
    dataset: Dataset, dataset_config: parts.Config, config: parts.Config, out: Path, lineage: list[dict[str, Any]]
) -> dict[str, Any]:
    """One round: the result is in `out`, its manifest is returned."""
    kept = _manifest.keep(dataset, config)
    labels, dropper = dataset.train.labels, f"filter '{config.name}'"
    refuse_empty_classes(kept.mask, labels, dataset.classes, dropper, "let it drop less")
    result = _manifest.result_of(kept, dataset, dataset_config, config, lineage)
    if _ranks.rank() == 0:
        _manifest.save(out, result)
    return result.manifest


def in_rounds(
    dataset_config: parts.Config, config: parts.Config, out: Path, rounds: int, runs_dir: Path, data_dir: Path | None
) -> dict[str, Any]:
    """`rounds` times: filter what is left, train the network's run on it, filter with that network.

    The rounds before the last are saved beside `out` as NAME.round-1.npz and so on; the manifest lists them.
    """
    dataset = datasets.load(dataset_config, data_dir)
    run = _run_to_repeat(config, rounds)
    lineage: list[dict[str, Any]] = []
    manifest: dict[str, Any] = {}
    for number in range(1, rounds + 1):
        target = out if number == rounds else out.with_name(f"{out.stem}.round-{number}.npz")
        with all_ranks():
            manifest = filtered(dataset, dataset_config, config, target, lineage)
        say(f"round {number} of {rounds}: {manifest['counts']['kept']:,} samples kept")
        if number < rounds:
            lineage = [*lineage, _entry(number, target, manifest)]
            assert run is not None
            folder = _trained(run, target, runs_dir, data_dir)
            config = config.model_copy(update={"network": str(folder), "model": None, "after": str(target)})
    return manifest


def _run_to_repeat(config: parts.Config, rounds: int) -> Run | None:
    if rounds < 1:
        raise Problem(f"--rounds {rounds} makes no sense: use 1 or more")
    if rounds == 1:
        return None
    run = run_of(getattr(config, "network", ""))
    if run is None or "after" not in type(config).model_fields:
        raise Problem(
            f"--rounds {rounds} trains the network again, but filter '{config.name}' was not given a run: "
            "use --network with the folder of a run or a recipe"
        )
    return run


def _trained(run: Run, kept: Path, runs_dir: Path, data_dir: Path | None) -> Path:
    """The folder of the run, trained on what is left."""
    from bigbatch.engines import fit_run
    from bigbatch.training.loop import train

    again = fit_run(Run(**(run.model_dump(mode="json") | {"filter": str(kept)})))
    train(again, runs_dir=runs_dir, data_dir=data_dir)
    return runs_dir / again.folder_name


def _entry(number: int, path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    counts = {name: manifest["counts"][name] for name in ("kept", "dropped")}
    return {"round": number, "file": str(path), **counts, "network": manifest["info"]["network"]}
