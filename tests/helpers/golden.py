"""Short trainings, a filter and a simulation, down to a hash of their bits: what tests/test_golden.py compares.

tests/data/golden.json has what they were at a commit that is trusted. After a change that is meant to change results:

    make golden        # or: python tests/helpers/golden.py record

Only the command line and the files that it leaves behind are used, so that the code behind them is free to change.
Each command is a fork of one process that has imported torch, as imports would take most of the time otherwise. Ranks
are forks with the variables that torchrun sets; one case is started by `--ranks 2` itself.
"""

from __future__ import annotations

import csv
import hashlib
import json
import multiprocessing
import os
import platform
import runpy
import socket
import subprocess
import sys
import tempfile
from importlib import import_module, metadata
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "data" / "golden.json"

# A recipe and its settings. Micro-batches are fixed, as the automatic choice goes by timing, and so small that a rank
# has several; the last global batch of an epoch is a smaller one.
TRAININGS = {
    "digits": ("digits", "epochs=2", "micro_batch=4"),
    "legw_digits": ("legw_digits", "epochs=3", "global_batch=64", "micro_batch=24"),
    "batchnorm": (
        *("digits", "epochs=3", "global_batch=64", "micro_batch=16", "batchnorm_group=16"),
        *("model.batch_norm=true", "model.dropout=0.1"),
    ),
    "text": (
        *("legw_ptb", "epochs=4", "global_batch=12", "micro_batch=4", "optimizer.lr=0.1", "schedule.baseline_batch=12"),
        *("dataset.official=false", "dataset.steps=5", "model.embedding=8", "model.hidden=8", "model.init=torch"),
    ),
    "small_loss": (
        "digits",
        "epochs=4",
        "global_batch=64",
        "micro_batch=24",
        "selector=small_loss",
        "optimizer.lr=0.1",
    ),
    "lars": (
        "digits",
        "epochs=4",
        "global_batch=64",
        "micro_batch=24",
        "optimizer=lars",
        "optimizer.trust_coefficient=0.02",
        "optimizer.weight_decay=1e-4",
    ),
    "lamb": (
        "digits",
        "epochs=4",
        "global_batch=64",
        "micro_batch=24",
        "optimizer=lamb",
        "optimizer.weight_decay=0.01",
    ),
}
BY_LAUNCHER = "lars-2"
CASES = (*(f"{name}-{ranks}" for name in TRAININGS for ranks in (1, 2)), "filter", "published")

_SLOW_IMPORTS = ("torch._dynamo", "sklearn.datasets", "sklearn.neighbors", "openTSNE")
_VERSIONS = ("torch", "numpy", "scipy", "scikit-learn", "openTSNE", "faiss-cpu")  # the filter uses faiss if it can


def machine() -> dict[str, Any]:
    """What bits depend on besides this project: equal machines have to give equal bits."""
    import torch

    return {
        "cpu": _cpu(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),  # ranks divide them into threads, and sums are cut by threads
        "python": platform.python_version(),
        **{name: _version(name) for name in _VERSIONS},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, str]:
    """Virtual machines may name different processors alike, so family, caches and vector instructions count too."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {"model name": platform.processor() or platform.machine()}
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    named = {key: fields.get(key, "") for key in ("model name", "cpu family", "model", "stepping", "cache size")}
    vector = [flag for flag in fields.get("flags", "").split() if flag.startswith(("avx", "fma", "amx"))]
    return named | {"vector flags": " ".join(sorted(vector))}


class Maker:
    """Makes cases in a folder, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[str, Path] = {}
        self.texts = _write_texts(folder / "data")

    def make(self, case: str) -> dict[str, Any]:
        if case == "filter":
            return self._filter()
        if case == "published":
            return self._published()
        return _trained(self._train(case))

    def _train(self, case: str) -> Path:
        """The folder of the finished run, which is not run again."""
        if case in self.runs:
            return self.runs[case]
        name, _, ranks = case.rpartition("-")
        recipe, *settings = TRAININGS[name]
        line = ["train", recipe, *(f"--set={setting}" for setting in settings), "--quiet"]
        line += [f"--runs-dir={self.folder / case}", f"--data-dir={self.texts}"]
        if case == BY_LAUNCHER:
            _launch([*line, "--ranks", ranks])
        else:
            _fork(line, int(ranks), self.folder / f"{case}.log")
        self.runs[case] = next((self.folder / case).glob("*/summary.json")).parent
        return self.runs[case]

    def _filter(self) -> dict[str, Any]:
        import numpy as np

        out = self.folder / "kept.npz"
        line = ["filter", "digits", f"--network={self._train('digits-1')}", f"--out={out}", "--quiet"]
        _fork([*line, "--set=jobs=1", "--set=iterations=100"], 1, self.folder / "filter.log")
        with np.load(out) as kept:
            mask, eps = kept["mask"], kept["score"]
        return {
            "sha256": {"mask": _hash({"mask": mask}), "eps": _hash({"eps": eps})},
            "numbers": {"kept": int(mask.sum()), "mean_eps": float(eps.mean())},
        }

    def _published(self) -> dict[str, Any]:
        _fork(["scale", "published", f"--out={self.folder}"], 1, self.folder / "published.log")
        with (self.folder / "published.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = ("what", "ranks", "simulated", "error", "9 of 10 steps", "over versions")  # others are prose
        table = json.dumps([[row[column] for column in columns] for row in rows])
        return {
            "sha256": hashlib.sha256(table.encode()).hexdigest(),
            "numbers": {f"{row['what']} on {row['ranks']}": float(row["simulated"].rstrip("%")) for row in rows},
        }


def _write_texts(folder: Path) -> Path:
    """A made-up language in the layout of the Penn Treebank: each line counts on from a number of its own."""
    (folder / "ptb").mkdir(parents=True)
    for name, lines in (("train", 150), ("valid", 10), ("test", 40)):
        starts = [(line * line + len(name)) % 12 for line in range(lines)]
        text = "".join(" ".join(f"w{(start + n) % 12}" for n in range(12)) + " <unk>\n" for start in starts)
        (folder / "ptb" / f"ptb.{name}.txt").write_text(text)
    return folder


def _trained(run: Path) -> dict[str, Any]:
    import numpy as np
    from safetensors.numpy import load_file

    weights = load_file(max((run / "checkpoint").glob("step-*")) / "model.safetensors")
    summary = json.loads((run / "summary.json").read_text())
    squares = [np.square(tensor, dtype=np.float64).sum() for tensor in weights.values() if tensor.dtype.kind == "f"]
    measured = ("test_accuracy", "test_perplexity", "test_loss", "train_loss")
    return {
        "sha256": _hash(weights),
        "numbers": {key: summary[key] for key in measured if key in summary}
        | {"weight_norm": float(sum(squares)) ** 0.5},
    }


def _hash(arrays: dict[str, Any]) -> str:
    """Over names, types, shapes and bytes; not over a file, which says other things too."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _launch(line: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "bigbatch", *line], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"bigbatch {' '.join(line)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")


def _fork(line: list[str], ranks: int, log: Path) -> None:
    fork = multiprocessing.get_context("fork")
    started = [fork.Process(target=_command, args=(line, at_rank, log)) for at_rank in _environments(ranks)]
    for process in started:
        process.start()
    running = started
    while running and not any(process.exitcode for process in started):
        wait([process.sentinel for process in running])
        running = [process for process in running if process.is_alive()]
    for process in running:  # they would wait for the rank that failed
        process.kill()
    for process in started:
        process.join()
    if any(process.exitcode for process in started):
        codes = [process.exitcode for process in started]
        raise RuntimeError(f"bigbatch {' '.join(line)}: exit {codes}\n{log.read_text()}")


def _environments(ranks: int) -> list[dict[str, str]]:
    """What torchrun would set for each rank."""
    if ranks == 1:
        return [{}]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    each = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks)]
    return [{key: str(value) for key, value in one.items()} for one in each]


def _command(line: list[str], environment: dict[str, str], log: Path) -> None:
    """`python -m bigbatch LINE`, in this process."""
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    sys.argv = ["bigbatch", *line]
    runpy.run_module("bigbatch", run_name="__main__", alter_sys=True)


def make(cases: list[str]) -> dict[str, Any]:
    """The machine, and what each case gives on it; a case that fails leaves the others alone."""
    made: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OMP_NUM_THREADS"] = "1"  # before anything that reads it is imported
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"  # a filter's map of yesterday would hide a change
        for module in _SLOW_IMPORTS:
            import_module(module)
        maker = Maker(Path(folder))
        for case in cases:
            try:
                made[case] = maker.make(case)
            except Exception as error:
                made[case] = {"error": f"{type(error).__name__}: {error}"}
        return {"machine": machine(), "cases": made}


def main() -> None:
    command, *cases = sys.argv[1:] or [""]
    if command == "show":
        print(json.dumps(make(cases or list(CASES)), indent=1))
    elif command == "record" and not cases:
        made = make(list(CASES))
        failed = {case: one["error"] for case, one in made["cases"].items() if "error" in one}
        if failed:
            sys.exit("nothing is recorded:\n" + "\n".join(f"{case}: {error}" for case, error in failed.items()))
        RECORDED.write_text(json.dumps(made, indent=1) + "\n")
    else:
        sys.exit("usage: python tests/helpers/golden.py record | show [CASE ...]")


if __name__ == "__main__":
    main()
