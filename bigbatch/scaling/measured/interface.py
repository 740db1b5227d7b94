"""The network interface towards the first rank, which gloo would otherwise guess from the host's name."""

from __future__ import annotations

import os
import socket
import struct

_SIOCGIFADDR = 0x8915  # Linux: the address of an interface


def choose() -> None:
    """Sets GLOO_SOCKET_IFNAME where ranks are on several machines and nobody has set it."""
    master, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    if one_machine or not master or not port or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    name = towards(master, int(port))
    if name:
        os.environ["GLOO_SOCKET_IFNAME"] = name


def towards(host: str, port: int) -> str | None:
    """The interface whose address packets to a host leave from; None where it cannot be told."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))  # sends nothing: it only looks up the way
            own = probe.getsockname()[0]
        return next((name for _, name in socket.if_nameindex() if _address(name) == own), None)
    except OSError:
        return None


def _address(name: str) -> str | None:
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None  # it has no address of IPv4
