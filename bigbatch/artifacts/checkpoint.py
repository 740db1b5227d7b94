"""Checkpoints for an exact resume, written atomically: a kill at any moment leaves a complete one behind.

checkpoint/step-00000042/ holds model.safetensors, state.pt (optimizer, progress, hidden state) and manifest.json
with the SHA-256 of both. The hashes are verified first, because torch loads a file with a flipped bit silently.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bigbatch.artifacts import atomic
from bigbatch.errors import Notice, Problem
from bigbatch.position import Progress

KEPT = 2  # number of checkpoints per run; older ones are deleted
_FILES = ("model.safetensors", "state.pt")


@dataclass(frozen=True)
class TrainingState:
    """What a resumed training needs besides the weights."""

    progress: Progress
    global_batch: int
    optimizer: dict[str, Any]
    hidden_state: list[Tensor] | None
    epoch_loss_sum: float
    seconds: float
    seconds_in_steps: float
    average: dict[str, Any] | None = None  # the moving average of the weights
    metrics: dict[str, Any] | None = None  # rows, bytes and SHA-256 of metrics.jsonl at this step

    def to_dict(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {"progress": asdict(self.progress)}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> TrainingState:
        """Checkpoints of version 0.1 call the hidden state `carried`."""
        state = {("hidden_state" if name == "carried" else name): value for name, value in state.items()}
        return cls(**(state | {"progress": Progress(**state["progress"])}))


def save(folder: Path, step: int, run_hash: str, model: nn.Module, state: dict[str, Any]) -> Path:
    """Write a checkpoint atomically and delete all but the newest two."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    final = folder / f"step-{step:08d}"
    try:
        with atomic.replace_folder(final) as temporary:
            save_model(model, str(temporary / "model.safetensors"))
            torch.save(state, temporary / "state.pt")
            manifest = {"run": run_hash, "step": step, "sha256": {name: _sha256(temporary / name) for name in _FILES}}
            (temporary / "manifest.json").write_text(json.dumps(manifest, indent=2))
    except (OSError, RuntimeError, SafetensorError) as error:  # how Python, torch and safetensors report a full disk
        earlier = [path.name for path in _newest_first(folder)]
        raise Problem(
            f"the checkpoint of step {step} could not be written ({_describe_error(error)}); "
            f"{f'{earlier[0]} is untouched' if earlier else 'there is no earlier checkpoint'}: "
            f"{atomic.advise(error)} in {folder}, then 'bigbatch resume {folder.parent}'"
        ) from error
    for old in (*_newest_first(folder)[KEPT:], *folder.glob(".step-*.tmp")):  # a kill leaves the latter behind
        shutil.rmtree(old, ignore_errors=True)
    return final


def load(folder: Path, run_hash: str, saved_step: int = 0) -> tuple[Path, dict[str, Any]] | None:
    """Return the folder and the state of the newest undamaged checkpoint, or None if none was ever saved.

    `saved_step` is the last one that the run's own records say was saved: an earlier one is loaded only where this
    one is there and damaged.
    """
    found, damages = find_newest(folder, run_hash)
    if not damages and (found.step if found else 0) < saved_step:
        raise Problem(
            f"{folder} has no checkpoint of step {saved_step} or later, but this run saved one: make it reachable "
            "again (is it mounted?), restore it from a copy, or start over with --fresh"
        )
    if found is None:
        return None
    if damages:
        warnings.warn(Notice(f"{damages[0]}; continuing from {found.path.name}"), stacklevel=2)
    return found.path, torch.load(found.path / "state.pt", map_location="cpu", weights_only=True)


class Found(NamedTuple):
    """A checkpoint whose files match their hashes."""

    path: Path
    step: int


def find_newest(folder: Path, run_hash: str) -> tuple[Found | None, list[str]]:
    """Return the newest undamaged checkpoint of a run, and what is wrong with newer ones."""
    damages: list[str] = []
    for candidate in _newest_first(folder):
        damage = _find_damage(candidate, run_hash)
        if damage is None:
            return Found(candidate, _step(candidate)), damages
        damages.append(damage)
    if damages:
        raise Problem(
            f"{damages[0]}, and no earlier checkpoint is undamaged: restore it from a copy, or start over with --fresh"
        )
    return None, []


def load_model(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights and buffers into a model of the same shape."""
    from safetensors.torch import load_model as load_safetensors

    load_safetensors(model, str(checkpoint / "model.safetensors"))


def _newest_first(folder: Path) -> list[Path]:
    """Return what is there, whole or not. A folder that is out of reach is a Problem: it is not empty."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError as error:
        if not folder.is_symlink():
            return []
        raise Problem(f"{folder} leads to {folder.readlink()}, which is out of reach: mount or restore it") from error
    except OSError as error:
        raise Problem(f"{folder} cannot be read ({error.strerror}): make it readable") from error
    return sorted((folder / name for name in names if re.fullmatch(r"step-\d+", name)), key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _find_damage(checkpoint: Path, run_hash: str) -> str | None:
    """Return what is wrong with a checkpoint's files, or None if they match their hashes."""
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        if manifest["step"] != _step(checkpoint) or set(manifest["sha256"]) != set(_FILES):
            return f"{checkpoint / 'manifest.json'} is damaged"
        for name, expected in manifest["sha256"].items():
            if _sha256(checkpoint / name) != expected:
                return f"{checkpoint / name} is damaged (its SHA-256 is not the one in manifest.json)"
        if manifest["run"] != run_hash:
            return f"{checkpoint} belongs to another run ({manifest['run']}, not {run_hash})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"{checkpoint} is incomplete ({_describe_error(error)})"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RuntimeError):  # torch names its own source files here
        return "torch could not write all of it"
    return str(error).splitlines()[0]
