"""Search the options of the network filter by the accuracy of a network trained on the result at a large batch.

Accuracy is measured on held-out training samples; the test set is not used. (For a clean split, the network whose
features are used must not be trained on the held-out samples: train it on the held_out dataset.)
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from bigbatch import datasets, filters, parts
from bigbatch.artifacts import atomic
from bigbatch.curation.rounds import CurationRequest, check_output_file, configure_filter
from bigbatch.datasets import Dataset
from bigbatch.datasets.held_out import Subset
from bigbatch.datasets.reading.hashing import hash_array, hash_json
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache
from bigbatch.filters.pipeline.features import load_feature_file
from bigbatch.filters.pipeline.source import FEATURE_FILES, open_feature_source
from bigbatch.libraries import import_library, is_installed
from bigbatch.output.progress import log_progress, show_progress, stage
from bigbatch.recipes import load_run
from bigbatch.run import Run

_ROWS_PER_COPY = 8192


@dataclass(frozen=True)
class TuningRequest(CurationRequest):
    """Which filter to tune, and the training that judges it: `recipe` at `global_batch`."""

    dataset: str
    network: str
    recipe: str
    global_batch: int
    out: Path  # .json with the best options and all trials
    settings: Sequence[str] = ()
    trials: int = 20
    seeds: int = 2  # trainings per trial
    held_out: float = 0.2  # fraction of the training samples
    seed: int = 0


# options of the filter, and accuracy (on held-out samples) and kept; these are None with a problem if it refused them
Trial = dict[str, Any]


def tune_filter(request: TuningRequest) -> dict[str, Any]:
    """Search perplexity, min_samples, drop and reducer; write the best options and every trial to `out`."""
    check_output_file(request.out, "tuned.json")
    if request.trials < 1 or request.seeds < 1:
        raise Problem(f"--trials {request.trials} and --seeds {request.seeds} must be at least 1: use 1 or more")
    with show_progress(not request.quiet):
        network = request.train_if_recipe(request.network)
        dataset_config, config = configure_filter(request.dataset, "network", network, request.settings)
        split = {"of": dataset_config.model_dump(mode="json"), "fraction": request.held_out, "seed": request.seed}
        unfiltered, trials = _search(request, config, parts.configure("datasets", {"name": "held_out", **split}))
        best = max((trial for trial in trials if "problem" not in trial), key=itemgetter("accuracy"))
        log_progress(f"best {100 * best['accuracy']:.2f} % held out, {100 * unfiltered:.2f} % without a filter")
    found = {
        "dataset": dataset_config.model_dump(mode="json"),
        "network": request.network,
        "recipe": request.recipe,
        "best": best,
        "note": "the best of many trials is biased upwards: confirm it with 'bigbatch filter compare'",
        "unfiltered_accuracy": unfiltered,
        "trials": trials,
        "held_out": request.held_out,
        "seeds": request.seeds,
        "global_batch": request.global_batch,
    }
    atomic.write_text(request.out, json.dumps(found, indent=2) + "\n")
    return found


def _search(request: TuningRequest, config: parts.Config, held_out: parts.Config) -> tuple[float, list[Trial]]:
    """Return the accuracy without a filter, and all trials of an Optuna study; at least one has an accuracy."""
    optuna = import_library("optuna", "--tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    dataset = datasets.load(held_out, request.data_dir)
    config = _restrict_features_to_split(config, dataset)
    run = load_run(request.recipe).with_settings([f"global_batch={request.global_batch}"])
    fields = run.model_dump(mode="json") | {"name": "tune", "dataset": held_out.model_dump(mode="json")}
    trials: list[Trial] = []

    def mean_accuracy(kept: Path | None) -> float:
        """Average the accuracy on held-out samples over seeds; a training that diverges counts as zero."""
        runs = (Run(**fields | {"filter": kept and str(kept), "seed": seed}) for seed in range(request.seeds))
        summaries = map(request.train, runs)
        return statistics.mean(s["test_accuracy"] if s["diverged_at_step"] is None else 0.0 for s in summaries)

    with stage("trials", request.trials + 1) as advance:
        unfiltered = mean_accuracy(None)
        advance(1)

        def objective(trial: Any) -> float:
            options = _suggest_options(trial)
            filter_config = parts.configure("filters", config.model_dump(mode="json") | options)
            try:
                kept = filters.keep(dataset, filter_config)
            except Problem as problem:
                trials.append(options | {"accuracy": None, "kept": None, "problem": str(problem)})
                raise optuna.TrialPruned(str(problem)) from problem
            # named by its content, so that a repeated search finds its finished runs
            path = request.runs_dir / "tuned" / f"{hash_array(kept.mask.numpy())[:12]}.npz"
            filters.save(path, filters.create_result(kept, dataset, held_out, filter_config))
            accuracy = mean_accuracy(path)
            trials.append(options | {"accuracy": accuracy, "kept": int(kept.mask.sum())})
            advance(trial.number + 2, f"{100 * accuracy:.2f} %")
            return accuracy

        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=request.seed))
        study.optimize(objective, n_trials=request.trials)
    if all("problem" in trial for trial in trials):
        raise Problem(f"none of {len(trials)} trials could be filtered ({trials[0]['problem']}): use a larger dataset")
    return unfiltered, trials


def _suggest_options(trial: Any) -> dict[str, Any]:
    """Suggest options; perplexity only for reducers that have one, since it would be noise in the search for others."""
    reducers = ["tsne", "none", *(name for name in ("umap", "pacmap") if is_installed(name))]
    reducer = trial.suggest_categorical("reducer", reducers)
    options = {
        "mode": "fraction",
        "eps": None,
        "reducer": reducer,
        "min_samples": trial.suggest_int("min_samples", 2, 30, log=True),
        "drop": trial.suggest_float("drop", 0.01, 0.3, log=True),
    }
    if reducer in ("tsne", "umap"):
        options["perplexity"] = trial.suggest_float("perplexity", 5, 100, log=True)
    return options


def _restrict_features_to_split(config: parts.Config, dataset: Dataset) -> parts.Config:
    """Copy a file of features, which has all training samples, without those that are held out."""
    path = Path(getattr(config, "network", ""))
    if path.suffix not in FEATURE_FILES:
        return config
    split = dataset.train
    assert isinstance(split, Subset)
    source = open_feature_source(str(path), None, dataset)
    rows = load_feature_file(source, len(split.samples), "float32")
    chosen = split.chosen.numpy()
    name = hash_json({"features": source.hash, "rows": hash_array(chosen)})[:32]
    target = cache.stage_folder("split") / f"{name}.npy"
    with atomic.replace_file(target) as temporary:
        copy = cache.allocate_npy(temporary, "float32", (len(chosen), rows.shape[1]))
        for begin in range(0, len(chosen), _ROWS_PER_COPY):
            copy[begin : begin + _ROWS_PER_COPY] = rows[chosen[begin : begin + _ROWS_PER_COPY]]
        copy.flush()
    return config.model_copy(update={"network": str(target)})
