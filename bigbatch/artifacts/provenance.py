"""The provenance of a result: commit, package versions, hardware, command."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

_PACKAGES = ("bigbatch", "torch", "numpy", "scikit-learn", "safetensors", "pydantic")
_MAX_DIFF_CHARACTERS = 1_000_000  # a longer diff has data files in it
_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")


def collect() -> dict[str, Any]:
    """Return commit and uncommitted changes of the working directory, package versions, hardware, command."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty_diff": (_git("diff", *_DIFF, "HEAD", **_no_programs()) or "")[:_MAX_DIFF_CHARACTERS],
        "packages": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "hardware": hardware(),
        "command": sys.argv,
    }


def hardware() -> dict[str, Any]:
    """Return CPU, cores, torch's threads, memory, GPUs and operating system of this machine."""
    import torch

    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "system": platform.platform(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _no_programs() -> dict[str, str]:
    """Return the environment in which git starts no program that the repository's own configuration names.

    A folder that was unpacked here may be somebody else's repository. Filters of the user's own configuration stay.
    """
    pattern = r"^filter\..*\.(clean|process|smudge)$"
    found = (_git("config", "-z", "--show-scope", "--name-only", "--get-regexp", pattern) or "").split("\0")
    filters = [name for scope, name in zip(found[::2], found[1::2], strict=False) if scope in ("local", "worktree")]
    names = {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(["core.fsmonitor", *filters])}
    values = {key.replace("KEY", "VALUE"): "" for key in names}
    return {"GIT_CONFIG_COUNT": str(len(names)), **names, **values}


def _git(*arguments: str, **environment: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            env=os.environ | environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
