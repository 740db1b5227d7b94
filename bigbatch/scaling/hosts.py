"""Ranks on other machines: one torchrun per host, started through ssh, within a SLURM job through srun.

`netns:NAME` is a network namespace of this machine, entered with `ip netns exec` (as root): two of them joined by a
shaped link are a network to experiment with.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from bigbatch.errors import Problem

_NAMESPACE = "netns:"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")  # never an option of ssh or ip
_TIMEOUT_SECONDS = 60


def parse_hosts(text: str) -> list[str]:
    """Return the host names of `a,b`."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _NAME.fullmatch(name.removeprefix(_NAMESPACE)):
            raise Problem(f"--hosts has '{name}', which is not a host name: write names with commas, like node1,node2")
    if len(set(names)) < len(names):
        raise Problem(f"--hosts {text} names a host twice: ranks are divided over hosts evenly, name each once")
    return names


def check_reachable(hosts: Sequence[str]) -> None:
    """Refuse hosts that cannot be reached or that do not have this Python with bigbatch."""
    for host in hosts:
        command = command_on_host(host, [sys.executable, "-c", "import bigbatch"])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = f"{command[0]} is not installed" if isinstance(error, FileNotFoundError) else str(error)
        else:
            if done.returncode == 0:
                continue
            reason = (done.stderr.strip() or f"{command[0]} ended with {done.returncode}").splitlines()[-1]
        raise Problem(
            f"host '{host}' cannot be used ({reason}): check that '{command[0]}' reaches it without a password and "
            f"that {sys.executable} is there with bigbatch"
        )


def check_ranks_divide(hosts: Sequence[str], ranks: int) -> None:
    if ranks % min(ranks, len(hosts)):
        raise Problem(
            f"{ranks} ranks do not divide over {len(hosts)} hosts: use --ranks with multiples of {len(hosts)}"
        )


def command_on_host(host: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one on a host, one thread per rank."""
    environment = ["env", "OMP_NUM_THREADS=1"]
    if host.startswith(_NAMESPACE):
        return ["ip", "netns", "exec", host.removeprefix(_NAMESPACE), *environment, *command]
    if "SLURM_JOB_ID" in os.environ:
        return ["srun", "--nodes=1", "--ntasks=1", "--overlap", f"--nodelist={host}", *environment, *command]
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, shlex.join([*environment, *command])]


def build_host_commands(
    hosts: Sequence[str], world_size: int, module: str, arguments: Sequence[str]
) -> list[list[str]]:
    """Return the command of each host that takes part: `world_size` ranks in all, the same number on each."""
    check_ranks_divide(hosts, world_size)
    used = hosts[: min(world_size, len(hosts))]
    program = ["-m", module, *arguments]
    if world_size == 1:
        return [command_on_host(used[0], [sys.executable, *program])]
    launcher = [
        *(sys.executable, "-m", "bigbatch.launch.torchrun"),
        *(f"--nnodes={len(used)}", f"--nproc-per-node={world_size // len(used)}"),
        *(f"--master-addr={_host_address(used[0])}", f"--master-port={random.randint(20_000, 59_999)}"),
    ]
    return [command_on_host(host, [*launcher, f"--node-rank={number}", *program]) for number, host in enumerate(used)]


def _host_address(host: str) -> str:
    """Return the address at which other hosts find this one."""
    if not host.startswith(_NAMESPACE):
        return host.rpartition("@")[2]
    addresses = _interface_addresses("-n", host.removeprefix(_NAMESPACE))
    if not addresses:
        raise Problem(f"host '{host}' has no IPv4 address: give its interface one with 'ip address add'")
    return addresses[0][1]


def _interface_addresses(*options: str) -> list[tuple[str, str]]:
    """Return the name and the IPv4 address of every network interface except loopback."""
    command = ["ip", *options, "-4", "-o", "address", "show", "scope", "global"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS).stdout
    return re.findall(r"^\d+: (\S+)\s+inet (\d+\.\d+\.\d+\.\d+)", output, re.MULTILINE)


def choose_interface() -> None:
    """Set GLOO_SOCKET_IFNAME where ranks are on several machines: gloo would guess it from the host's name."""
    master, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    if one_machine or not master or not port or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, int(port)))  # sends nothing: it only looks up the route
        own = probe.getsockname()[0]
        for name, address in _interface_addresses():
            if address == own:
                os.environ["GLOO_SOCKET_IFNAME"] = name
