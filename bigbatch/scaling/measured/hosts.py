"""Ranks on other machines: one torchrun a host, started through ssh, within a SLURM job through srun.

`netns:NAME` is a network namespace of this machine, entered with `ip netns exec` (as root): two of them joined by a
shaped link are a network to try things on.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

from bigbatch.errors import Problem

_NAMESPACE = "netns:"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")  # never an option of ssh or ip
_PATIENCE_SECONDS = 60


def parsed(text: str) -> list[str]:
    """`a,b` as names, checked before anything is started."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _NAME.fullmatch(name.removeprefix(_NAMESPACE)):
            raise Problem(
                f"--hosts has '{name}', which is no name of a host: write names with commas, like node1,node2"
            )
    if len(set(names)) < len(names):
        raise Problem(f"--hosts {text} names a host twice: ranks are divided over hosts evenly, name each once")
    return names


def check(hosts: Sequence[str]) -> None:
    """Each can be reached and has this Python with bigbatch in it."""
    for host in hosts:
        line = on(host, [sys.executable, "-c", "import bigbatch"])
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"{line[0]} is not installed" if isinstance(error, FileNotFoundError) else str(error)
        else:
            if done.returncode == 0:
                continue
            reason = (done.stderr.strip() or f"{line[0]} ended with {done.returncode}").splitlines()[-1]
        raise Problem(
            f"host '{host}' cannot be used ({reason}): check that '{line[0]}' reaches it without a password and that "
            f"{sys.executable} is there with bigbatch"
        )


def check_divides(hosts: Sequence[str], ranks: int) -> None:
    if ranks % min(ranks, len(hosts)):
        raise Problem(
            f"{ranks} ranks do not divide over {len(hosts)} hosts: use --ranks with multiples of {len(hosts)}"
        )


def on(host: str, line: Sequence[str]) -> list[str]:
    """A command line that runs another one on a host, one thread a rank."""
    environment = ["env", "OMP_NUM_THREADS=1"]
    if host.startswith(_NAMESPACE):
        return ["ip", "netns", "exec", host.removeprefix(_NAMESPACE), *environment, *line]
    if "SLURM_JOB_ID" in os.environ:
        return ["srun", "--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={host}", *environment, *line]
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, shlex.join([*environment, *line])]


def lines(hosts: Sequence[str], ranks: int, module: str, arguments: Sequence[str]) -> list[list[str]]:
    """The command line of each host that takes part: `ranks` ranks in all, as many on each."""
    check_divides(hosts, ranks)
    used = hosts[: min(ranks, len(hosts))]
    program = ["-m", module, *arguments]
    if ranks == 1:
        return [on(used[0], [sys.executable, *program])]
    first = [
        *(f"--nnodes={len(used)}", f"--nproc-per-node={ranks // len(used)}"),
        *(f"--master-addr={_address(used[0])}", f"--master-port={random.randint(20_000, 59_999)}"),
    ]
    return [
        on(host, [sys.executable, "-m", "bigbatch.launch.torchrun", *first, f"--node-rank={number}", *program])
        for number, host in enumerate(used)
    ]


def _address(host: str) -> str:
    """Where other hosts find it."""
    if not host.startswith(_NAMESPACE):
        return host.rpartition("@")[2]
    line = ["ip", "-n", host.removeprefix(_NAMESPACE), "-4", "-o", "address", "show", "scope", "global"]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=_PATIENCE_SECONDS).stdout
    found = re.search(r"inet (\d+\.\d+\.\d+\.\d+)", shown)
    if not found:
        raise Problem(f"host '{host}' has no IPv4 address: give its interface one with 'ip address add'")
    return found.group(1)
