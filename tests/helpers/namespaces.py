"""Two network namespaces joined by a link that `tc` shapes: two machines, as far as ranks can tell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

NARROW = ("tbf", "rate", "400kbit", "burst", "2kb", "latency", "10s")
WIDE = ("tbf", "rate", "1gbit", "burst", "1mb", "latency", "10s")
FAR = ("netem", "delay", "25ms")  # each way


def run(*line: object) -> None:
    subprocess.run([str(word) for word in line], check=True, capture_output=True)


@contextmanager
def joined(shape: Sequence[str]) -> Iterator[str]:
    """`netns:A,netns:B`, as --hosts takes them."""
    a, b = (f"bb{os.getpid()}{end}" for end in "ab")
    try:
        for name in (a, b):
            run("ip", "netns", "add", name)
        run("ip", "link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth0", "netns", b)
        for name, address in ((a, "10.97.0.1/24"), (b, "10.97.0.2/24")):
            run("ip", "-n", name, "address", "add", address, "dev", "veth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "veth0", "up")
            run("tc", "-n", name, "qdisc", "add", "dev", "veth0", "root", *shape)
        yield f"netns:{a},netns:{b}"
    finally:
        for name in (a, b):
            with suppress(subprocess.CalledProcessError):
                run("ip", "netns", "delete", name)


@contextmanager
def taken(host: str, port: int) -> Iterator[None]:
    """Somebody else listens on a port of `netns:NAME`."""
    listen = f"import socket; s = socket.create_server(('', {port}), family=socket.AF_INET6, dualstack_ipv6=True)"
    line = ["ip", "netns", "exec", host.removeprefix("netns:"), sys.executable, "-c", f"{listen}; print(); input()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        yield
        process.communicate(b"\n")


def needs(shape: Sequence[str]) -> pytest.MarkDecorator:
    """Skip where such a link cannot be made, which is found out by making it: kernels differ in what they shape."""
    try:
        if not shutil.which("ip") or not shutil.which("tc"):
            raise FileNotFoundError
        with joined(shape):
            able = True
    except (subprocess.CalledProcessError, FileNotFoundError):
        able = False
    return pytest.mark.skipif(not able, reason=f"needs ip and tc, the right to use them, and {shape[0]} in the kernel")
