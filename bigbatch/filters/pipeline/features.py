"""The first stage: the penultimate layer's output for every training sample, in a memory-mapped file.

features.npy has row i for sample i, answers.npy the network's prediction for it (if its outputs are the dataset's
classes; from the same forward pass), done.npy one byte per chunk of rows. A chunk is a fixed batch of samples: its rows
are the same on any rank, before or after an interruption. A chunk is marked when all its rows are on disk.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from bigbatch import models
from bigbatch.artifacts import atomic
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.hashing import hash_json
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, feature_files, ranks
from bigbatch.filters.pipeline.feature_files import Precision
from bigbatch.filters.pipeline.source import FeatureSource, NetworkOutputs, check_network
from bigbatch.losses import per_sample_loss
from bigbatch.output.progress import stage

CHUNK = 256  # samples that the network sees at a time
_SECONDS_BETWEEN_MARKS = 2.0
_SAMPLES_IN_KEY = 8  # samples whose inputs stand for how all are normalised and cropped

_PREDICTION = np.dtype([("prediction", np.int64), ("confidence", np.float32), ("loss", np.float32)])


@dataclass(frozen=True)
class Features:
    """Of all training samples."""

    values: NDArray[np.number]  # [samples, width]; a read-only memory map, unless it was given in memory
    key: str  # the hash of what they were made from
    predictions: dict[str, NDArray[np.generic]] = field(default_factory=dict)  # prediction, confidence, loss


def extract_features(
    source: FeatureSource, dataset: Dataset, precision: Precision = "float32", *, any_classes: bool = False
) -> Features:
    """Compute the network's features of every sample, or open given ones. All ranks take part."""
    if source.array is not None:
        feature_files.check_features(source.array, len(dataset.train))
        return Features(source.array, source.hash)
    if source.file is not None:
        key = hash_json({"features": source.hash, "precision": precision})
        return Features(feature_files.open_features(source.file, len(dataset.train), precision, source.hash), key)
    assert source.module is not None
    return _compute_features(source, dataset, precision, any_classes)


def _compute_features(source: FeatureSource, dataset: Dataset, precision: Precision, any_classes: bool) -> Features:
    module, device = source.module, ranks.device()
    assert module is not None
    was_training = module.training
    module.to(device).eval()
    try:
        probe = torch.linspace(0, len(dataset.train) - 1, min(_SAMPLES_IN_KEY, len(dataset.train))).long()
        inputs = dataset.train.fetch(probe)[0]
        name = source.about["network"]
        outputs = check_network(module, _move_inputs(inputs, module, device), len(dataset.classes), name, any_classes)
        key_fields = {
            "dataset": dataset.hash,
            "inputs": sha256(inputs),
            "network": source.hash,
            "precision": precision,
            "chunk": CHUNK,
            "answers": outputs.are_classes,
        }
        key = hash_json(key_fields)
        folder = cache.stage_folder("features") / key[:32]
        ranks.compute_on_rank_zero(lambda: _create_files(folder, len(dataset.train), outputs, precision, key_fields))
        bad_sample = _fill_missing_chunks(folder, source, dataset, outputs)
    finally:
        module.train(was_training)
    if bad_sample:
        if ranks.rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        raise Problem(
            f"network {name} gives NaN or infinite features for sample {bad_sample - 1}: "
            "it has diverged or its weights are damaged; give another"
        )
    stored = np.load(folder / "answers.npy") if outputs.are_classes else None
    answers = {} if stored is None else {column: stored[column].copy() for column in stored.dtype.names}
    return Features(np.load(folder / "features.npy", mmap_mode="r"), key, answers)


def _create_files(
    folder: Path, samples: int, outputs: NetworkOutputs, precision: Precision, key_fields: dict[str, Any]
) -> None:
    """Create empty files, unless complete ones exist."""
    files: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
        "features.npy": (precision, (samples, outputs.width)),
        "done.npy": ("uint8", (-(-samples // CHUNK),)),
    }
    if outputs.are_classes:
        files["answers.npy"] = (_PREDICTION, (samples,))
    if all(_has_shape(folder / name, shape) for name, (_, shape) in files.items()):
        return
    with atomic.replace_folder(
        folder, per_process=True
    ) as temporary:  # several runs may need the same features at once
        for name, (dtype, shape) in files.items():
            cache.allocate_npy(temporary / name, dtype, shape)
        (temporary / "about.json").write_text(json.dumps(key_fields, indent=2))


def _has_shape(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a file has this shape. It is opened read-only: writing would extend a truncated file with zeros."""
    try:
        return bool(np.load(path, mmap_mode="r").shape == shape)
    except (OSError, ValueError):
        return False


def _fill_missing_chunks(folder: Path, source: FeatureSource, dataset: Dataset, outputs: NetworkOutputs) -> int:
    """Compute this rank's part of the missing chunks. Return 0, or 1 + a sample whose features are not finite."""
    rows, done = (np.load(folder / name, mmap_mode="r+") for name in ("features.npy", "done.npy"))
    answers = np.load(folder / "answers.npy", mmap_mode="r+") if outputs.are_classes else None
    missing = np.flatnonzero(done == 0)
    ranks.max_over_ranks(0)  # all have read which are missing before one is marked
    mine = np.array_split(missing, ranks.world_size())[ranks.rank()]
    pending: list[int] = []
    marked_at = -math.inf  # the first chunk at once
    bad_sample = filled = 0
    samples = len(dataset.train)
    with stage("features", sum(len(_chunk_samples(chunk, samples)) for chunk in mine)) as advance:
        for chunk, values, predicted in _iterate_chunks(mine, source, dataset, outputs):
            members = _chunk_samples(chunk, samples)
            block = slice(members.start, members.stop)
            rows[block] = values
            if answers is not None:
                answers[block] = predicted
            finite = np.isfinite(rows[block]).all(axis=1)  # as stored: float16 may overflow
            if not finite.all():
                bad_sample = members.start + int(np.argmin(finite)) + 1
                break
            pending.append(chunk)
            if time.monotonic() - marked_at > _SECONDS_BETWEEN_MARKS:
                _mark_done(rows, answers, done, pending)
                marked_at = time.monotonic()
            filled += len(members)
            advance(filled)
    _mark_done(rows, answers, done, pending)
    return ranks.max_over_ranks(bad_sample)


def _chunk_samples(chunk: int, samples: int) -> range:
    """The samples of a chunk; the last has fewer."""
    begin = int(chunk) * CHUNK
    return range(begin, min(begin + CHUNK, samples))


def _mark_done(
    rows: np.memmap[Any, Any],
    answers: np.memmap[Any, Any] | None,
    done: np.memmap[Any, Any],
    pending: list[int],
) -> None:
    rows.flush()  # the rows must be on disk before their mark
    if answers is not None:
        answers.flush()
    done[pending] = 1
    done.flush()
    pending.clear()


@torch.no_grad()
def _iterate_chunks(
    chunks: NDArray[np.int64], source: FeatureSource, dataset: Dataset, outputs: NetworkOutputs
) -> Iterator[tuple[int, NDArray[np.generic], NDArray[np.generic] | None]]:
    """Yield each chunk's number, its features, and the predictions if the network's outputs are classes."""
    module, device = source.module, ranks.device()
    assert module is not None
    samples = len(dataset.train)
    requests = [FetchRequest.of(torch.tensor(_chunk_samples(chunk, samples))) for chunk in chunks]
    with Prefetcher(dataset.train, dataset.workers) as prefetcher:
        prefetcher.prefetch(requests)
        for chunk, request in zip(chunks, requests, strict=True):
            inputs = _move_inputs(prefetcher.get(request)[0], module, device)
            if outputs.are_classes:
                features, logits = models.features_and_output(module, inputs)
                labels = dataset.train.labels[list(request.indices)]
                yield int(chunk), features.float().cpu().numpy(), _summarise_predictions(logits.float().cpu(), labels)
            else:
                yield int(chunk), models.features(module, inputs).float().cpu().numpy(), None


def _summarise_predictions(logits: Tensor, labels: Tensor) -> NDArray[np.generic]:
    """Return predicted class, its softmax probability, and the label's cross-entropy; NaN or -1 where not finite."""
    predicted = np.empty(len(logits), _PREDICTION)
    known = logits.isfinite().all(dim=1)
    confidence, prediction = logits.softmax(dim=1).max(dim=1)
    predicted["prediction"] = prediction.where(known, -1)
    predicted["confidence"] = confidence.where(known, math.nan)
    predicted["loss"] = per_sample_loss(logits, labels).where(known, math.nan)
    return predicted


def _move_inputs(inputs: Tensor, module: nn.Module, device: torch.device) -> Tensor:
    """Move inputs to the network's device and precision; without parameters the precision stays."""
    precisions = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    return inputs.to(device, next(precisions, inputs.dtype))
