"""The first stage: features of every training sample, in a memory-mapped file.

A network's features are its penultimate layer's output. features.npy has row i for sample i, answers.npy the network's
prediction for it (if its outputs are the dataset's classes; from the same forward pass), done.npy one byte per chunk of
rows. A chunk is a fixed batch of samples: its rows are the same on any rank, before or after an interruption. A chunk
is marked when all its rows are on disk. Features from an .npz, .npy or Parquet file are copied into a memory map once.

`network=out_of_fold` trains small networks here, so that none judges a sample that it has learned: a network that has
memorised a wrong label vouches for it.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from bigbatch import models, parts
from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.arrays import open_npz
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, ranks
from bigbatch.filters.pipeline.results import load
from bigbatch.filters.pipeline.scoring import DropOptions, Learner
from bigbatch.filters.pipeline.source import OUT_OF_FOLD, FeatureSource, hash_module, open_feature_source
from bigbatch.libraries import import_library
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

CHUNK = 256  # samples that the network sees at a time
_SECONDS_BETWEEN_MARKS = 2.0
_SAMPLES_IN_KEY = 8  # samples whose inputs stand for how all are normalised and cropped
_ROWS_PER_READ = 8192

_PREDICTION = np.dtype([("prediction", np.int64), ("confidence", np.float32), ("loss", np.float32)])

Precision = Literal["float32", "float16"]


class FeatureOptions(parts.Config):
    """Whose features, of which samples."""

    later_fields: ClassVar[tuple[str, ...]] = ("folds", "epochs", "global_batch", "lr")

    network: str  # the folder of a run, weights, mypkg.mod:Class, a file of features, or out_of_fold
    model: str | dict[str, Any] | None = None  # which model the weights are for, or is trained out of fold: cnn
    any_classes: bool = False  # take the features of a network that was trained for other classes
    precision: Precision = "float32"
    after: str | None = None  # an earlier kept.npz: only the samples it kept are used
    seed: int = Field(0, ge=0)
    # of networks that are trained out of fold, as by the filters that score samples
    folds: PositiveInt = 5  # a sample's network learned from the other folds; 1: one network, from all samples
    epochs: PositiveInt = 10
    global_batch: PositiveInt = 64
    lr: float = Field(0.05, gt=0)

    def selected_rows(self, dataset: Dataset) -> NDArray[np.int64]:
        """Return the indices of the samples to filter."""
        if self.after is None:
            return np.arange(len(dataset.train))
        return load(self.after, dataset).mask.nonzero().squeeze(1).numpy()


class RankedOptions(FeatureOptions, DropOptions):
    """Options of filters that rank all samples by features: unless a network is given, out of fold."""

    network: str = OUT_OF_FOLD
    after: None = None


@dataclass(frozen=True)
class Features:
    """Of all training samples."""

    values: NDArray[np.number]  # [samples, width]; a read-only memory map, unless it was given in memory
    key: str  # the hash of what they were made from
    predictions: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # prediction, confidence, loss


def compute_features(
    options: FeatureOptions, dataset: Dataset, source: FeatureSource | None = None
) -> tuple[Features, dict[str, Any]]:
    """Return features of all samples, and what the manifest says of their source. All ranks take part."""
    if dataset.task != "classify":
        raise Problem(f"filter '{options.name}' needs classes, but text has none: use it on images")
    if source is None and options.network == OUT_OF_FOLD:
        features, about = _compute_out_of_fold(options, dataset)
    else:
        given = options.network, options.model, dataset
        source = source or open_feature_source(*given, any_classes=options.any_classes)
        features = extract_features(source, dataset, options.precision, any_classes=options.any_classes)
        about = source.about | {"hash": source.hash}
    return features, about | {"width": features.values.shape[1], "threads": torch.get_num_threads()}


def extract_features(
    source: FeatureSource, dataset: Dataset, precision: Precision = "float32", *, any_classes: bool = False
) -> Features:
    """Compute the network's features of every sample, or open given ones. All ranks take part."""
    samples, array = len(dataset.train), source.array
    if array is not None:
        if array.ndim != 2 or len(array) != samples:
            raise Problem(f"features have shape {array.shape} but there are {samples} samples: give one row per sample")
        if not np.isfinite(array).all():
            sample = int(np.argmin(np.isfinite(array).all(axis=1)))
            raise Problem(f"features are NaN or infinite for sample {sample}: fix or leave out that row")
        return Features(array, source.hash)
    if source.file is not None:
        key = hash_json({"features": source.hash, "precision": precision})
        return Features(load_feature_file(source, samples, precision), key)
    module = source.module
    assert module is not None
    was_training = module.training
    module.to(ranks.device()).eval()
    try:
        return _compute_with_network(module, source, dataset, precision, any_classes)
    finally:
        module.train(was_training)


def _compute_with_network(
    module: nn.Module, source: FeatureSource, dataset: Dataset, precision: Precision, any_classes: bool
) -> Features:
    samples, name = len(dataset.train), source.about["network"]
    inputs = dataset.train.fetch(_samples_in_key(dataset))[0]
    width, are_classes = _check_network(module, inputs, len(dataset.classes), name, any_classes)
    key_fields = {
        "dataset": dataset.hash,
        "inputs": sha256(inputs),
        "network": source.hash,
        "precision": precision,
        "chunk": CHUNK,
        "answers": are_classes,
    }
    key = hash_json(key_fields)
    folder = cache.stage_folder("features") / key[:32]
    files: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
        "features.npy": (precision, (samples, width)),
        "done.npy": ("uint8", (-(-samples // CHUNK),)),
    }
    if are_classes:
        files["answers.npy"] = (_PREDICTION, (samples,))

    def create_missing_files() -> None:
        if all(cache.npy_shape(folder / file) == shape for file, (_, shape) in files.items()):
            return
        with atomic.replace_folder(folder, per_process=True) as temporary:  # several runs may need the same features
            for file, (dtype, shape) in files.items():
                cache.allocate_npy(temporary / file, dtype, shape)
            (temporary / "about.json").write_text(json.dumps(key_fields, indent=2))

    ranks.compute_on_rank_zero(create_missing_files)
    bad_sample = _fill_missing_chunks(folder, module, dataset, are_classes)
    if bad_sample:
        if ranks.rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise Problem(
            f"network {name} gives NaN or infinite features for sample {bad_sample - 1}: "
            "it has diverged or its weights are damaged; give another"
        )
    return _open_features(folder, key, are_classes)


def _samples_in_key(dataset: Dataset) -> Tensor:
    return torch.linspace(0, len(dataset.train) - 1, min(_SAMPLES_IN_KEY, len(dataset.train))).long()


def _open_features(folder: Path, key: str, are_classes: bool) -> Features:
    answers = np.load(folder / "answers.npy") if are_classes else None
    predictions = {} if answers is None else {column: answers[column].copy() for column in answers.dtype.names}
    return Features(np.load(folder / "features.npy", mmap_mode="r"), key, predictions)


@torch.no_grad()
def _check_network(module: nn.Module, inputs: Tensor, classes: int, name: str, any_classes: bool) -> tuple[int, bool]:
    """Return the width of the features and whether the outputs are the dataset's classes.

    Raise a Problem if the samples or the classes do not fit.
    """
    try:
        features, output = models.features_and_output(module, _move_inputs(inputs, module))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Problem(
            f"network {name} cannot take samples of shape {tuple(inputs.shape[1:])} ({reason}): "
            "give one that was trained on this dataset"
        ) from error
    outputs = output.shape[1] if isinstance(output, Tensor) and output.ndim == 2 else None
    if outputs not in (None, classes) and not any_classes:
        raise Problem(
            f"network {name} knows {outputs} classes but the dataset has {classes}: give one that was trained "
            "on it, or set any_classes=true to use the features of this one"
        )
    return features.shape[1], outputs == classes


def _fill_missing_chunks(folder: Path, module: nn.Module, dataset: Dataset, are_classes: bool) -> int:
    """Compute this rank's part of the missing chunks. Return 0, or 1 + a sample whose features are not finite."""
    rows, done = (np.load(folder / name, mmap_mode="r+") for name in ("features.npy", "done.npy"))
    answers = np.load(folder / "answers.npy", mmap_mode="r+") if are_classes else None
    missing = np.flatnonzero(done == 0)
    ranks.max_over_ranks(0)  # all have read which are missing before one is marked
    mine = np.array_split(missing, ranks.world_size())[ranks.rank()].tolist()
    pending: list[int] = []
    marked_at = -math.inf  # the first chunk at once
    bad_sample = 0

    def mark_done() -> None:
        rows.flush()  # the rows must be on disk before their mark
        if answers is not None:
            answers.flush()
        done[pending] = 1
        done.flush()
        pending.clear()

    for chunk, block, features, answer in _forward_chunks(module, dataset, mine, are_classes):
        rows[block] = features
        if answers is not None:
            answers[block] = answer
        finite = np.isfinite(rows[block]).all(axis=1)  # as stored: float16 may overflow
        if not finite.all():
            bad_sample = block.start + int(np.argmin(finite)) + 1
            break
        pending.append(chunk)
        if time.monotonic() - marked_at > _SECONDS_BETWEEN_MARKS:
            mark_done()
            marked_at = time.monotonic()
    mark_done()
    return ranks.max_over_ranks(bad_sample)


@torch.no_grad()
def _forward_chunks(
    module: nn.Module, dataset: Dataset, chunks: Sequence[int], are_classes: bool
) -> Iterator[tuple[int, slice, NDArray[np.float32], NDArray[np.generic] | None]]:
    """Yield number, rows, features and (if the outputs are classes) predictions of each chunk of samples."""
    blocks = [slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(dataset.train))) for chunk in chunks]
    requests = [FetchRequest(tuple(range(block.start, block.stop))) for block in blocks]
    with (
        stage("features", sum(len(request.indices) for request in requests)) as advance,
        Prefetcher(dataset.train, dataset.workers) as prefetcher,
    ):
        prefetcher.prefetch(requests)
        filled = 0
        for chunk, block, request in zip(chunks, blocks, requests, strict=True):
            inputs = _move_inputs(prefetcher.get(request)[0], module)
            answers = None
            if are_classes:
                features, logits = models.features_and_output(module, inputs)
                answers = _summarise_predictions(logits.float().cpu(), dataset.train.labels[block])
            else:
                features = models.features(module, inputs)
            yield chunk, block, features.float().cpu().numpy(), answers
            filled += len(request.indices)
            advance(filled)


def _compute_out_of_fold(options: FeatureOptions, dataset: Dataset) -> tuple[Features, dict[str, Any]]:
    """Train a network for each fold on the other folds, on rank 0; each sample's row is by its fold's network."""
    model = parts.configure("models", options.model or "cnn")
    learner = Learner(model, options.epochs, options.global_batch, options.lr, options.seed, options.name)
    inputs = (dataset.train.fetch(_samples_in_key(dataset), seed=options.seed, epoch=epoch)[0] for epoch in (None, 0))
    key_fields = {
        "dataset": dataset.hash,
        "inputs": [sha256(each) for each in inputs],  # how they are normalised, and augmented in training
        "labels": sha256(dataset.train.labels),
        "model": model.model_dump(mode="json"),
        **options.model_dump(include={"epochs", "global_batch", "lr", "seed", "precision"}),
        "folds": options.folds,
        "chunk": CHUNK,
        "version": 1,
    }
    folder = cache.stage_folder("features") / hash_json(key_fields)[:32]

    def compute() -> str:
        if not all((folder / file).exists() for file in ("features.npy", "answers.npy", "about.json")):
            with atomic.replace_folder(folder, per_process=True) as temporary:
                hashes = _fill_out_of_fold(temporary, learner, dataset, options)
                (temporary / "about.json").write_text(json.dumps(key_fields | {"networks": hashes}, indent=2))
        return hash_json({"networks": json.loads((folder / "about.json").read_text())["networks"]})

    digest = ranks.compute_on_rank_zero(compute)
    about = {"network": OUT_OF_FOLD, "folds": options.folds, "model": key_fields["model"], "hash": digest}
    return _open_features(folder, digest, are_classes=True), about


def _fill_out_of_fold(folder: Path, learner: Learner, dataset: Dataset, options: FeatureOptions) -> list[str]:
    """Write features and predictions of each fold by its network; return the hashes of the networks."""
    samples, hashes = len(dataset.train), []
    chunks = range(-(-samples // CHUNK))
    answers = cache.allocate_npy(folder / "answers.npy", _PREDICTION, (samples,))
    reference: NDArray[np.float32] | None = None  # by the first network
    for held_out, module in learner.train_on_folds(dataset, options.folds):
        found = list(_forward_chunks(module, dataset, chunks, are_classes=True))
        rows = np.concatenate([features for _, _, features, _ in found])
        if reference is None:
            reference = rows
            values = cache.allocate_npy(folder / "features.npy", options.precision, rows.shape)
        values[held_out] = align_features(rows, reference)[held_out]
        answers[held_out] = np.concatenate([answer for _, _, _, answer in found if answer is not None])[held_out]
        hashes.append(hash_module(module))
    values.flush()
    answers.flush()
    return hashes


def align_features(rows: NDArray[np.float32], reference: NDArray[np.float32]) -> NDArray[np.float32]:
    """Turn, scale and shift one network's features onto another's, sample by sample (Procrustes, Schönemann 1966).

    Networks find the same classes along other axes. Distances between the rows change by one common factor only.
    """
    procrustes = import_library("scipy.linalg", "aligning features").orthogonal_procrustes
    centred, target = rows - rows.mean(axis=0), reference - reference.mean(axis=0)
    scale = np.linalg.norm(target) / max(np.linalg.norm(centred), np.finfo(np.float32).tiny)
    aligned: NDArray[np.float32] = centred @ procrustes(centred, target)[0] * scale + reference.mean(axis=0)
    return aligned


def _summarise_predictions(logits: Tensor, labels: Tensor) -> NDArray[np.generic]:
    """Return predicted class, its softmax probability, and the label's cross-entropy; NaN or -1 where not finite."""
    predicted = np.empty(len(logits), _PREDICTION)
    known = logits.isfinite().all(dim=1)
    confidence, prediction = logits.softmax(dim=1).max(dim=1)
    predicted["prediction"] = prediction.where(known, -1)
    predicted["confidence"] = confidence.where(known, math.nan)
    predicted["loss"] = per_sample_loss(logits, labels).where(known, math.nan)
    return predicted


def _move_inputs(inputs: Tensor, module: nn.Module) -> Tensor:
    """Move inputs to the network's device and precision; without parameters the precision stays."""
    precisions = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    return inputs.to(ranks.device(), next(precisions, inputs.dtype))


def load_feature_file(source: FeatureSource, samples: int, precision: Precision) -> NDArray[np.number]:
    """Open the features of a file as a read-only memory map: a copy in the cache, made a chunk at a time."""
    path = source.file
    assert path is not None
    final = cache.stage_folder("features") / f"{source.hash[:32]}-{precision}.npy"

    def convert() -> None:
        if (cache.npy_shape(final) or (None,))[0] == samples:
            return
        with atomic.replace_file(final) as temporary:
            try:
                _copy_rows(path, temporary, samples, precision)
            except (OSError, ValueError, EOFError, NotImplementedError) as error:
                reason = str(error).partition("\n")[0]
                raise Problem(
                    f"features {path} cannot be read ({reason}): save them as [samples, width] numbers"
                ) from error

    ranks.compute_on_rank_zero(convert)
    mapped: NDArray[np.number] = np.load(final, mmap_mode="r")
    return mapped


def _copy_rows(path: Path, target: Path, samples: int, precision: Precision) -> None:
    rows: np.memmap[Any, Any] | None = None
    filled = 0
    with stage("features", samples) as advance:
        for chunk in _read_chunks(path):
            if chunk.ndim != 2 or chunk.dtype.kind not in "fiu":
                raise ValueError(f"found {chunk.dtype} of shape {chunk.shape}")
            if rows is None:
                rows = cache.allocate_npy(target, precision, (samples, chunk.shape[1]))
            if filled + len(chunk) > samples:
                filled = samples + 1
                break
            rows[filled : filled + len(chunk)] = chunk
            finite = np.isfinite(rows[filled : filled + len(chunk)]).all(axis=1)
            if not finite.all():
                sample = filled + int(np.argmin(finite))
                raise Problem(f"features {path} are NaN or infinite for sample {sample}: fix or leave out that row")
            filled += len(chunk)
            advance(filled)
    if filled != samples or rows is None:
        found = f"more than {samples}" if filled > samples else str(filled)
        raise Problem(
            f"features {path} have {found} rows but the dataset has {samples} samples: give one row per sample"
        )
    rows.flush()


def _read_chunks(path: Path) -> Iterator[NDArray[np.number]]:
    """Yield blocks of rows: of an .npy; of the array `features` of an .npz, or its only one; of the column `features`
    of lists of a Parquet file, or of all its columns of numbers."""
    if path.suffix != ".parquet":
        arrays = {"features": np.load(path, mmap_mode="r")} if path.suffix == ".npy" else open_npz(path)
        if "features" not in arrays and len(arrays) != 1:
            raise ValueError(f"it holds {', '.join(arrays)} but no 'features'")
        stored = arrays.get("features", next(iter(arrays.values())))
        if stored.ndim != 2:
            raise ValueError(f"found shape {stored.shape}")
        for begin in range(0, len(stored), _ROWS_PER_READ):
            yield np.asarray(stored[begin : begin + _ROWS_PER_READ])
    else:
        parquet = import_library("pyarrow.parquet", f"reading {path.name}")
        with parquet.ParquetFile(path) as file:
            has_lists = "features" in file.schema_arrow.names
            for batch in file.iter_batches(_ROWS_PER_READ, columns=["features"] if has_lists else None):
                if has_lists:
                    yield batch.column(0).flatten().to_numpy(zero_copy_only=False).reshape(batch.num_rows, -1)
                else:
                    yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
