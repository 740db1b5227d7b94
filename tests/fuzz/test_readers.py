"""Every reader of files answers damaged input with a Problem or a value, never with another error.

A seeded mutator damages a valid file; `make fuzz` runs FUZZ_INPUTS=100000 inputs for each reader.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small import small_run

from bigbatch import datasets, filters, parts
from bigbatch.artifacts import checkpoint
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import read_rows
from bigbatch.datasets.cifar10 import _from_binary, _from_pickle
from bigbatch.datasets.reading.idx import read_idx
from bigbatch.errors import Problem
from bigbatch.recipes import load_run
from bigbatch.scaling.machine import find_machine
from bigbatch.sweeps import SweepConfig

INPUTS = int(os.environ.get("FUZZ_INPUTS", "60"))
_TOKENS = [
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b'""',
    b"[]",
    b"{}",
    b"[" * 2000,
    b"9" * 5000,
    b'"\\ud800"',
    b"\x00",
    b'"os:x"',
]


def mutate(content: bytes, draw: random.Random) -> bytes:
    """Flip bits, cut, repeat, insert bytes or tokens of JSON; now and then replace all of it."""
    damaged = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        at, length = draw.randrange(len(damaged) + 1), draw.choice([1, 2, 8, 64])
        match draw.randrange(7):
            case 0 | 1 if at < len(damaged):
                damaged[at] ^= 1 << draw.randrange(8)
            case 2:
                del damaged[at : at + length]
            case 3:
                damaged[at:at] = damaged[at : at + length]
            case 4:
                damaged[at:at] = draw.randbytes(length)
            case 5:
                damaged[at : at + draw.choice([0, 1, 4])] = draw.choice(_TOKENS)
            case 6 if draw.random() < 0.2:
                damaged = bytearray(draw.choice([*_TOKENS, b"", bytes(damaged[:at])]))
    return bytes(damaged)


def replace_value(content: bytes, draw: random.Random) -> bytes:
    """Replace, remove or add one value somewhere in JSON: a valid file that says something else."""
    root = json.loads(content)
    holder = root
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = draw.choice(keys)
        if isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.7:
            holder = holder[key]
            continue
        values = [
            None,
            -1,
            0,
            1e308,
            2**70,
            True,
            "",
            "x" * 300,
            "os:system",
            [],
            {},
            [[]],
            {"name": 3},
            {"name": "digits"},
        ]
        if isinstance(holder, dict) and draw.random() < 0.2:
            del holder[key]
        else:
            holder[key] = draw.choice(values)
        break
    return json.dumps(root).encode()


def idx_file() -> bytes:
    return struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 4) + bytes(24)


def pickled() -> bytes:
    return pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}, protocol=2)


def rows() -> bytes:
    return b"".join(json.dumps({"step": step, "train_loss": 0.5, "lr": 0.1}).encode() + b"\n" for step in range(5))


def run_json() -> bytes:
    run = small_run(steps=2, epochs=None)
    return json.dumps({"run": run.to_dict(), "hash": run.hash}).encode()


def sweep_json() -> bytes:
    fields = {"title": "x", "run": small_run().to_dict(), "grids": {"optimizer.lr": [0.1, 0.2]}, "seeds": 2}
    return json.dumps(fields | {"variants": {"A": {"epochs": 1}}}).encode()


def machine_json() -> bytes:
    return find_machine("summit").model_dump_json().encode()


def kept_npz() -> bytes:
    config = parts.configure("datasets", "digits")
    dataset = datasets.load(config)
    mask = parts.configure("filters", {"name": "random", "drop": 0.1})
    path = Path("kept.npz")
    filters.save(path, filters.create_result(filters.keep(dataset, mask), dataset, config, mask))
    return path.read_bytes()


def arrays_npz() -> bytes:
    np.savez("arrays.npz", labels=np.arange(9) % 3, images=np.zeros((9, 2, 2), np.uint8), classes=np.array(list("abc")))
    return Path("arrays.npz").read_bytes()


def manifest_json() -> bytes:
    folder = Path("checkpoints/step-00000001")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "state.pt"):
        (folder / name).write_bytes(b"x")
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    sums = {"model.safetensors": digest, "state.pt": digest}
    return json.dumps({"run": "aaaa", "step": 1, "sha256": sums}, indent=2).encode()


def read_folder(path: Path) -> None:
    path.rename("run.json")
    Folder(Path()).run()


def read_sweep(path: Path) -> None:
    SweepConfig.read(path).points()


def read_set(path: Path) -> None:
    small_run().with_settings([path.read_bytes().decode(errors="replace")], typed=False)


def read_arrays(path: Path) -> None:
    datasets.load(parts.configure("datasets", {"name": "arrays", "path": str(path)}))


def read_manifest(path: Path) -> None:
    path.rename("checkpoints/step-00000001/manifest.json")
    checkpoint.find_newest(Path("checkpoints"), "aaaa")


READERS: dict[str, tuple[Callable[[], bytes], Callable[[Path], object], str]] = {
    "idx": (idx_file, lambda path: read_idx(path, 3), "x"),
    "idx.gz": (lambda: gzip.compress(idx_file()), lambda path: read_idx(path, 3), "x.gz"),
    "cifar10 binary": (lambda: bytes(2 * 3073), lambda path: _from_binary(path, path.read_bytes(), 2), "x"),
    "cifar10 pickle": (pickled, lambda path: _from_pickle(path, path.read_bytes(), 2), "x"),
    "metrics.jsonl": (rows, lambda path: list(read_rows(path)), "metrics.jsonl"),
    "run.json of a folder": (run_json, read_folder, "new.json"),
    "run.json as a recipe": (run_json, lambda path: load_run(str(path)), "x.json"),
    "summary.json": (
        lambda: b'{"test_accuracy": 0.5, "steps": 3}',
        lambda path: Folder(path.parent).summary(),
        "summary.json",
    ),
    "sweep.json": (sweep_json, read_sweep, "sweep.json"),
    "--set": (lambda: b'optimizer={"name": "lars", "lr": 0.1}', read_set, "x"),
    "machine.json": (machine_json, lambda path: find_machine(str(path)), "x.json"),
    "kept.npz": (kept_npz, filters.load, "x.npz"),
    "arrays.npz": (arrays_npz, read_arrays, "x.npz"),
    "checkpoint manifest": (manifest_json, read_manifest, "new.json"),
}


@pytest.mark.timeout(0 if INPUTS > 1000 else 300)
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_a_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGBATCH_TRUST", "")
    make, read, file_name = READERS[name]
    content = make()
    is_json = content[:1] == b"{" and name != "metrics.jsonl"
    failures: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(INPUTS):
            draw = random.Random(seed)
            change = replace_value if is_json and seed % 2 else mutate
            path = Path(file_name).absolute()
            path.write_bytes(change(content, draw))
            try:
                read(path)
            except Problem:
                pass
            except Exception as error:
                place = error.__traceback__
                while place and place.tb_next:
                    place = place.tb_next
                where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
                failures.setdefault(f"{type(error).__name__}: {str(error)[:80]} at {where}", seed)
    assert not failures, f"by seed: {failures}"
