"""The filter's own options, searched for by what a small network learns from the result at a large batch.

Accuracy is measured on training samples that are held out; the test set is not looked at. (Where the network whose
features are used was itself trained on the held-out samples, it has seen them: train it on the held-out dataset's
run for a clean split.)
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bigbatch import datasets, parts
from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset
from bigbatch.datasets.held_out import Subset
from bigbatch.datasets.reading.hashing import hash_array, hash_json
from bigbatch.errors import Problem
from bigbatch.filters import _cache, _manifest, _ready
from bigbatch.filters._library import installed, library
from bigbatch.filters._progress import say, station
from bigbatch.filters._source import FEATURE_FILES, open_source
from bigbatch.run import Run

_ROWS_AT_A_TIME = 8192


def searched(
    config: parts.Config,
    dataset_config: parts.Config,
    run: Run,
    trials: int,
    seeds: int,
    seed: int,
    runs_dir: Path,
    data_dir: Path | None,
    fraction: float,
) -> dict[str, Any]:
    """The best options and every trial, with the accuracy of filtering nothing as the first row."""
    optuna = library("optuna", "--tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    held_out = parts.configure("datasets", _held_out(dataset_config, fraction, seed))
    dataset = datasets.load(held_out, data_dir)
    config = _of_the_split(config, dataset)
    rows: list[dict[str, Any]] = []

    def held_out_accuracy(kept_path: Path | None) -> float:
        return statistics.mean(
            _accuracy(run, held_out, kept_path, number, runs_dir, data_dir) for number in range(seeds)
        )

    with station("trials", trials + 1) as advance:
        unfiltered = held_out_accuracy(None)
        advance(1)

        def objective(trial: Any) -> float:
            options = _suggested(trial)
            filtered = parts.configure("filters", config.model_dump(mode="json") | options)
            try:
                kept = _manifest.keep(dataset, filtered)
            except Problem as problem:
                rows.append({**options, "accuracy": None, "kept": None, "problem": str(problem)})
                raise optuna.TrialPruned(str(problem)) from problem
            # named after what it holds, so that trainings on it are found again when the search is repeated
            path = runs_dir / "tuned" / f"{hash_array(kept.mask.numpy())[:12]}.npz"
            _manifest.save(path, _manifest.result_of(kept, dataset, held_out, filtered))
            accuracy = held_out_accuracy(path)
            rows.append({**options, "accuracy": accuracy, "kept": int(kept.mask.sum())})
            advance(trial.number + 2, f"{100 * accuracy:.2f} %")
            return accuracy

        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(objective, n_trials=trials)
    tried = [row for row in rows if row["accuracy"] is not None]
    if not tried:
        raise Problem(f"none of {trials} trials could be filtered ({rows[0]['problem']}): use a larger dataset")
    best = max(tried, key=lambda row: row["accuracy"])
    say(f"best {100 * best['accuracy']:.2f} % held out, {100 * unfiltered:.2f} % without a filter")
    return {
        "best": best,
        "note": "the best of many trials flatters itself: confirm it with 'bigbatch filter compare'",
        "unfiltered_accuracy": unfiltered,
        "trials": rows,
        "held_out": fraction,
        "seeds": seeds,
    }


def _suggested(trial: Any) -> dict[str, Any]:
    """A perplexity only for reducers that have one: others would make it noise that the search tries to learn from."""
    reducers = ["tsne", "none", *(name for name in ("umap", "pacmap") if installed(name))]
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


def _of_the_split(config: parts.Config, dataset: Dataset) -> parts.Config:
    """Ready features are of all training samples: a file of those that are not held out takes their place."""
    path = Path(getattr(config, "network", ""))
    if path.suffix not in FEATURE_FILES:
        return config
    split = dataset.train
    assert isinstance(split, Subset)
    source = open_source(str(path), None, dataset)
    rows = _ready.mapped(path, len(split.samples), "float32", source.hash)
    chosen = split.chosen.numpy()
    name = hash_json({"features": source.hash, "rows": hash_array(chosen)})[:32]
    target = _cache.folder("split") / f"{name}.npy"
    with atomic.file(target) as temporary:
        copy = _cache.empty_npy(temporary, "float32", (len(chosen), rows.shape[1]))
        for begin in range(0, len(chosen), _ROWS_AT_A_TIME):
            copy[begin : begin + _ROWS_AT_A_TIME] = rows[chosen[begin : begin + _ROWS_AT_A_TIME]]
        copy.flush()
    return config.model_copy(update={"network": str(target)})


def _held_out(config: parts.Config, fraction: float, seed: int) -> dict[str, Any]:
    return {"name": "held_out", "of": config.model_dump(mode="json"), "fraction": fraction, "seed": seed}


def _accuracy(
    run: Run, dataset: parts.Config, kept: Path | None, seed: int, runs_dir: Path, data_dir: Path | None
) -> float:
    """On the held-out samples; a diverged training is worth nothing."""
    from bigbatch.training.loop import train

    changes = {"name": "tune", "dataset": dataset.model_dump(mode="json"), "filter": kept and str(kept), "seed": seed}
    summary = train(Run(**(run.model_dump(mode="json") | changes)), runs_dir=runs_dir, data_dir=data_dir)
    return summary["test_accuracy"] if summary["diverged_at_step"] is None else 0.0
