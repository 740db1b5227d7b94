"""What `bigbatch filter` does, as functions: filter a dataset, compare results, tune the filter."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bigbatch import parts
from bigbatch.artifacts import atomic
from bigbatch.engines import env_rank
from bigbatch.errors import Problem
from bigbatch.filters import _compare, _table
from bigbatch.filters._manifest import load
from bigbatch.filters._progress import shown
from bigbatch.filters._rounds import in_rounds
from bigbatch.filters._source import run_of
from bigbatch.filters._tune import searched
from bigbatch.run import Run
from bigbatch.settings import parse_value


def filter_dataset(
    dataset: str,
    *,
    out: Path,
    network: str | None = None,
    filter_name: str = "network",
    settings: Iterable[str] = (),
    rounds: int = 1,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Filter a dataset's training samples into `out` (.npz, with a .json beside it); returns the manifest.

    `network` is the folder of a run, a recipe (trained first), weights (with the setting model=NAME), a model as
    mypkg.mod:Class, or a file of features. Settings are the filter's options, and the dataset's as dataset.NAME=VALUE.
    """
    out = Path(out)
    refuse_bad_target(out, "kept.npz")
    loud = not quiet and _first_rank()
    with shown(loud):
        folder = _trained_first(network, runs_dir, data_dir, quiet) if network else None
        dataset_config, config = configured(dataset, filter_name, folder, settings)
        manifest = in_rounds(dataset_config, config, out, rounds, runs_dir, data_dir)
    if loud:
        _table.show(manifest)
    return manifest


def configured(
    dataset: str, filter_name: str, network: str | None, settings: Iterable[str]
) -> tuple[parts.Config, parts.Config]:
    """The dataset's and the filter's options. A run's own dataset brings its options: how inputs are normalised."""
    dataset_options: dict[str, Any] = {"name": dataset}
    run = run_of(network) if network else None
    if run is not None and run.dataset.name == dataset:
        dataset_options = run.dataset.model_dump(mode="json")
    filter_options: dict[str, Any] = {"name": filter_name} | ({"network": network} if network else {})
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise Problem(f"'{setting}' is not a setting: write NAME=VALUE, like drop=0.2 or dataset.augment=false")
        target = dataset_options if name.startswith("dataset.") else filter_options
        target[name.removeprefix("dataset.")] = parse_value(text)
    fields = parts.find("filters", filter_name).Config.model_fields
    if "network" in fields and "network" not in filter_options:
        raise Problem(
            f"filter '{filter_name}' looks at a network's features: give --network with a recipe, the folder of a run, "
            "weights, mypkg.mod:Class, or a file of features"
        )
    return parts.configure("datasets", dataset_options), parts.configure("filters", filter_options)


def _trained_first(network: str, runs_dir: Path, data_dir: Path | None, quiet: bool) -> str:
    """A recipe or a run.json is trained (or found trained); anything else is taken as it is."""
    if network not in parts.names("recipes") and not network.endswith(".json"):
        return network
    from bigbatch.engines import fit_run
    from bigbatch.recipes import load_run
    from bigbatch.training.loop import train

    run = fit_run(load_run(network))
    train(run, runs_dir=runs_dir, data_dir=data_dir, quiet=quiet)
    return str(runs_dir / run.folder_name)


def _first_rank() -> bool:
    return env_rank() == 0


def compare(
    results: Iterable[Path],
    *,
    recipe: str | None = None,
    settings: Iterable[str] = (),
    seeds: int = 3,
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    quiet: bool = False,
) -> list[_compare.Row]:
    """Sizes, overlaps and classes of several kept.npz; with a recipe, what it learns from each with several seeds.

    The recipe's dataset is replaced by the results' own. Settings change the recipe, like global_batch=8192.
    """
    paths = [Path(path) for path in results]
    if len(paths) < 2:
        raise Problem(f"a comparison needs two results or more, got {len(paths)}: give several kept.npz")
    twice = [path for number, path in enumerate(paths) if path in paths[:number]]
    if twice:
        raise Problem(f"{twice[0]} is given twice: name each result once")
    if seeds < 1:
        raise Problem(f"--seeds {seeds} makes no sense: use 1 or more")
    rows = _compare.rows(paths)
    run = _proxy(recipe, settings, paths[0]) if recipe else None
    with shown(not quiet):
        if run is not None:
            rows = [
                _compare.trained(row, path, run, seeds, runs_dir, data_dir)
                for row, path in zip(rows, paths, strict=True)
            ]
    if not quiet:
        _compare.show(rows, run)
    return rows


def _proxy(recipe: str, settings: Iterable[str], result: Path) -> Run:
    """The recipe on the dataset that a result was made for."""
    from bigbatch.recipes import load_run

    dataset = load(result).manifest["dataset"]["config"]
    return Run(**(load_run(recipe).model_dump(mode="json") | {"dataset": dataset})).with_settings(settings)


def tune(
    dataset: str,
    *,
    network: str,
    recipe: str,
    global_batch: int,
    out: Path,
    trials: int = 20,
    seeds: int = 2,
    held_out: float = 0.2,
    seed: int = 0,
    settings: Iterable[str] = (),
    runs_dir: Path = Path("runs"),
    data_dir: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Search perplexity, min_samples, fraction and reducer; `recipe` at `global_batch` is what judges them.

    Accuracy is that on training samples that are held out. Writes the best options and every trial to `out` (.json).
    """
    out = Path(out)
    refuse_bad_target(out, "tuned.json")
    if trials < 1 or seeds < 1:
        raise Problem(f"--trials {trials} and --seeds {seeds} have to be 1 or more")
    from bigbatch.recipes import load_run

    with shown(not quiet):
        folder = _trained_first(network, runs_dir, data_dir, quiet)
        dataset_config, config = configured(dataset, "network", folder, settings)
        run = load_run(recipe).with_settings([f"global_batch={global_batch}"])
        found = searched(config, dataset_config, run, trials, seeds, seed, runs_dir, data_dir, held_out)
    found = {"dataset": dataset_config.model_dump(mode="json"), "network": network, "recipe": recipe} | found
    found |= {"global_batch": global_batch}
    atomic.write_text(out, json.dumps(found, indent=2) + "\n")
    return found


def refuse_bad_target(out: Path, usual_name: str) -> None:
    """Before anything is computed: a place that cannot be written to would cost an hour of t-SNE."""
    suffix = Path(usual_name).suffix
    if out.is_dir():
        raise Problem(f"--out {out} is a folder: name a file in it, like --out {out / usual_name}")
    if out.suffix != suffix:
        raise Problem(f"--out {out} has to end in {suffix}: use --out {out.with_suffix(suffix)}")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Problem(
            f"--out {out} cannot be written, as {folder} takes no files ({error.strerror}): choose another folder"
        ) from error
