"""How a run's global batch is divided on this machine: decided once, written into run.json, kept on resume."""

from __future__ import annotations

import torch

from bigbatch import batch_sizes
from bigbatch.artifacts import provenance
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import Engine
from bigbatch.errors import Problem
from bigbatch.run import Run
from bigbatch.training import batchnorm, micro_batch
from bigbatch.training.batches import Split
from bigbatch.training.gradient import GlobalGradient

_BATCHNORM_GROUP = 128  # where the run leaves it open


def choose_split(run: Run, folder: Folder, engine: Engine, gradient: GlobalGradient, global_batch: int) -> Split:
    """Micro-batches by timing; where the model has BatchNorm, micro-batches are its groups."""
    local_batch = global_batch // engine.world_size
    if batchnorm.layers(gradient.model):
        group = engine.broadcast(_group(run, folder, local_batch))
        if -(-global_batch // group) < engine.world_size:
            raise Problem(
                f"global_batch {global_batch} in BatchNorm groups of {group} leaves a rank of {engine.world_size} "
                f"without work: use --set batchnorm_group={local_batch} or less, or fewer ranks"
            )
        split = Split(engine.world_size, group, whole_groups=True)
    else:
        split = Split(
            engine.world_size, run.micro_batch if run.micro_batch != "auto" else _timed(run, folder, engine, gradient)
        )
    if engine.rank == 0:
        groups = {"batchnorm_group": split.micro_batch} if split.whole_groups else {}
        folder.record_resolved(micro_batch=split.micro_batch, ranks=engine.world_size, **groups)
    return split


def _group(run: Run, folder: Folder, local_batch: int) -> int:
    if run.batchnorm_group == "auto":
        if run.micro_batch != "auto":
            return run.micro_batch
        return folder.resolved().get("batchnorm_group") or min(_BATCHNORM_GROUP, local_batch)
    if run.micro_batch not in ("auto", run.batchnorm_group):
        raise Problem(
            f"micro_batch {run.micro_batch} differs from the BatchNorm group {run.batchnorm_group}, over which "
            f"this model normalises: use --set micro_batch=auto"
        )
    return run.batchnorm_group


def _timed(run: Run, folder: Folder, engine: Engine, gradient: GlobalGradient) -> int:
    """Rank 0 times, all ranks follow. A resumed run keeps its choice, so that it stays the same to the bit."""
    global_batch = batch_sizes.largest(run.global_batch)  # smaller ones on the way are cut by the same size
    local_batch = max(1, global_batch // engine.world_size)
    if engine.rank == 0:
        noted = folder.resolved()
        if noted.get("ranks") == engine.world_size and "micro_batch" in noted:
            size = noted["micro_batch"]
        else:
            key = {
                "model": run.model.model_dump(mode="json"),
                "sample_shape": gradient.batches.dataset.sample_shape,
                "classes": len(gradient.batches.dataset.classes),
                "dtype": run.dtype,
                "local_batch": local_batch,
                "ranks": engine.world_size,
                "torch": torch.__version__,
                "machine": provenance.hardware(),
            }
            size = micro_batch.remembered(
                key, lambda: micro_batch.choose(local_batch, lambda n: gradient.seconds_for(n, global_batch))
            )
    else:
        size = 0
    return engine.broadcast(size)
