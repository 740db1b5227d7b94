"""Filter a dataset; in several rounds, the network is trained again on the kept samples (the outlook of the paper)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bigbatch import datasets, engines, filters, parts, settings
from bigbatch.artifacts import atomic
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.summary import Summary
from bigbatch.datasets import Dataset
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import ranks
from bigbatch.filters.pipeline.results import Manifest, refuse_empty_classes
from bigbatch.output.progress import log_progress, show_progress
from bigbatch.recipes import load_run
from bigbatch.run import Run
from bigbatch.training.loop import train
from bigbatch.trust import trust_typed

_SECONDS_TO_WAIT_FOR_A_RANK = 3600.0
MEASURED = ("accuracy", "kept")  # of the best trial in a tuned.json, beside its options


@dataclass(frozen=True, kw_only=True)
class CurationRequest:
    """Where networks are trained, where datasets are found, and whether progress is shown."""

    runs_dir: Path = Path("runs")
    data_dir: Path | None = None
    quiet: bool = False

    def train(self, run: Run, *, quiet: bool = True) -> Summary:
        """Train a run in its folder, unless it is finished already."""
        return train(run, runs_dir=self.runs_dir, data_dir=self.data_dir, quiet=quiet)

    def train_if_recipe(self, network: str) -> str:
        """Return the folder of the trained run if `network` is a recipe or a run.json, else `network`."""
        if network not in parts.names("recipes") and not network.endswith(".json"):
            return network
        run = load_run(network).on_ranks(1)
        self.train(run, quiet=self.quiet)
        return str(self.runs_dir / run.folder_name)


@dataclass(frozen=True)
class FilterRequest(CurationRequest):
    """What to filter, by what, and where the result goes."""

    dataset: str
    out: Path  # .npz; a readable .json is written beside it
    network: str | None = None  # folder of a run, recipe (trained first), weights, mypkg.mod:Class, or features
    filter_name: str = "network"
    settings: Sequence[str] = ()  # the filter's options, and the dataset's as dataset.NAME=VALUE
    rounds: int = 1
    tuned: Path | None = None  # a tuned.json: its dataset, network and best options, unless others are given


def filter_dataset(request: FilterRequest) -> Manifest:
    """Filter the training samples of a dataset into `out`; return the manifest.

    In each round but the first, the network's run is trained again on the kept samples. The rounds before the last
    are saved beside `out` as NAME.round-1.npz and so on; the manifest lists them.
    """
    check_output_file(request.out, "kept.npz")
    if request.rounds < 1:
        raise Problem(f"--rounds must be at least 1, got {request.rounds}: use 1 or more")
    with show_progress(not request.quiet and engines.env_rank() == 0):
        tuned = _read_tuned(request.tuned) if request.tuned else {}
        named = request.network or tuned.get("network")
        network = request.train_if_recipe(named) if named else None
        dataset_config, config = configure_filter(
            request.dataset, request.filter_name, network, request.settings, tuned
        )
        dataset = datasets.load(dataset_config, request.data_dir)
        run = _run_to_repeat(config, request.rounds) if request.rounds > 1 else None
        lineage: list[dict[str, Any]] = []
        for number in range(1, request.rounds + 1):
            is_last = number == request.rounds
            out = request.out if is_last else request.out.with_name(f"{request.out.stem}.round-{number}.npz")
            manifest = _filter_once(dataset, dataset_config, config, out, lineage)
            counts = manifest.counts
            log_progress(f"round {number} of {request.rounds}: {counts.kept:,} samples kept")
            if run is None or is_last:
                break
            entry = {"round": number, "file": str(out), "kept": counts.kept, "dropped": counts.dropped}
            lineage.append(entry | {"mask_hash": manifest.mask_hash, "network": manifest.info["network"]})
            again = engines.fit_run_to_ranks(Run(**(run.model_dump(mode="json") | {"filter": str(out)})))
            request.train(again)
            folder = str(request.runs_dir / again.folder_name)
            config = config.model_copy(update={"network": folder, "model": None, "after": str(out)})
    return manifest


def check_output_file(out: Path, usual_name: str) -> None:
    """Refuse a file that cannot be written, before anything is computed: t-SNE may take an hour."""
    suffix = Path(usual_name).suffix
    if out.is_dir():
        raise Problem(f"--out {out} is a folder: name a file in it, like --out {out / usual_name}")
    if out.suffix != suffix:
        raise Problem(f"--out {out} must end in {suffix}: use --out {out.with_suffix(suffix)}")
    atomic.check_writable(out.parent)


def configure_filter(
    dataset: str,
    filter_name: str,
    network: str | None,
    assignments: Sequence[str],
    tuned: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[parts.Config, parts.Config]:
    """Return the configs of dataset and filter. A run on the same dataset provides that dataset's options."""
    trust_typed([dataset, filter_name, network])
    options: dict[str, Any] = {"dataset": {"name": dataset}, "filter": {"name": filter_name}}
    options["filter"] |= {name: value for name, value in tuned.get("best", {}).items() if name not in MEASURED}
    if network:
        options["filter"]["network"] = network
        run = Folder(Path(network)).run() if (Path(network) / "run.json").is_file() else None
        if run is not None and run.dataset.name == dataset:
            options["dataset"] = run.dataset.model_dump(mode="json")
    if tuned.get("dataset", {}).get("name") == dataset:
        options["dataset"] = tuned["dataset"]
    for assignment in assignments:
        name, value = settings.parse(assignment, example="drop=0.2 or dataset.augment=false")
        trust_typed(value)
        settings.assign(options, name if name.startswith("dataset.") else f"filter.{name}", value)
    if "network" in parts.find("filters", filter_name).Config.model_fields and "network" not in options["filter"]:
        raise Problem(
            f"filter '{filter_name}' uses a network's features: give --network with a recipe, the folder of a run, "
            "weights, mypkg.mod:Class, or a file of features"
        )
    return parts.configure("datasets", options["dataset"]), parts.configure("filters", options["filter"])


def _read_tuned(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found["best"], dict) and isinstance(found["dataset"], dict) and isinstance(found["network"], str):
            return dict(found)
        raise ValueError("'best' and 'dataset' are not objects, or 'network' is not a name")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} is not what --tune writes ({error}): give a tuned.json") from error


def _run_to_repeat(config: parts.Config, rounds: int) -> Run:
    network = Path(getattr(config, "network", ""))
    if not (network / "run.json").is_file() or "after" not in type(config).model_fields:
        raise Problem(
            f"--rounds {rounds} trains the network again, but filter '{config.name}' was not given a run: "
            "use --network with the folder of a run or a recipe"
        )
    return Folder(network).run()


def _filter_once(
    dataset: Dataset, dataset_config: parts.Config, config: parts.Config, out: Path, lineage: list[dict[str, Any]]
) -> Manifest:
    """Filter on all ranks, save the result to `out` and return its manifest."""
    with _process_group():
        kept = filters.keep(dataset, config)
        dropper = f"filter '{config.name}'"
        refuse_empty_classes(kept.mask, dataset.train.labels, dataset.classes, dropper, "let it drop less")
        result = filters.create_result(kept, dataset, dataset_config, config, lineage)
        if ranks.rank() == 0:
            filters.save(out, result)
    return result.require_manifest()


@contextmanager
def _process_group() -> Iterator[None]:
    """Form a process group of the ranks that torchrun started; a single process needs none."""
    if engines.env_world_size() == 1:
        yield
        return
    config = parts.configure("engines", {"name": "ddp", "timeout_seconds": _SECONDS_TO_WAIT_FOR_A_RANK})
    engine = engines.start(config)
    try:
        yield
    finally:
        engine.stop()
