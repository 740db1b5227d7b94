"""Access control: only the server's own page, in the browser that opened the printed address, with small requests."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bigbatch.viewer.requests import RequestError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 8 << 20
_MAX_DISCARDED_BYTES = 256 << 20
_DISCARD_SECONDS = 5.0
_KEY_BYTES = 32
_TOO_LARGE = 413
_CONTENT_POLICY = "default-src 'self'; img-src 'self' blob: data:; style-src 'self'"


class SessionKeys:
    """One-time tokens, each valid for one session; sessions last as long as the server."""

    def __init__(self, on_token_used: Callable[[], None] | None = None) -> None:
        self._tokens: set[bytes] = set()
        self._sessions: set[bytes] = set()
        self._on_token_used = on_token_used or (lambda: None)

    def new_token(self) -> str:
        token = secrets.token_urlsafe(_KEY_BYTES)
        self._tokens.add(_digest(token))
        return token

    def exchange_token(self, token: str) -> str | None:
        """Return a new session; None for a token that is unknown or was used already."""
        if _digest(token) not in self._tokens:
            return None
        self._tokens.discard(_digest(token))
        session = secrets.token_urlsafe(_KEY_BYTES)
        self._sessions.add(_digest(session))
        self._on_token_used()
        return session

    def is_valid(self, session: str) -> bool:
        return _digest(session) in self._sessions


def _digest(key: str) -> bytes:
    """Keys are looked up by hash, so that the time it takes does not depend on the key."""
    return hashlib.sha256(key.encode()).digest()


class RequestGuard:
    """ASGI middleware that checks Host, Origin, session and size of every request."""

    def __init__(self, app: App, keys: SessionKeys, host: str, *, framed: bool = False) -> None:
        self.app, self.keys = app, keys
        self.hosts = _own_names(host)
        self.allows_any_address = not is_loopback(host)
        policy = _CONTENT_POLICY if framed else f"{_CONTENT_POLICY}; frame-ancestors 'none'"
        self.headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets

        too_large = False

        async def send_with_headers(message: Message) -> None:
            nonlocal too_large
            if message["type"] == "http.response.start":
                too_large = message["status"] == _TOO_LARGE
                given = message.get("headers", [])
                kept = [] if any(name == b"cache-control" for name, _ in given) else [(b"cache-control", b"no-store")]
                hang_up = [(b"connection", b"close")] if too_large else []
                message["headers"] = [*given, *kept, *hang_up, *self.headers]
            elif too_large:
                # a client whose connection closes while it still sends may never read the answer
                await send({**message, "more_body": True})
                await _discard_body(receive)
                message = {"type": "http.response.body"}
            await send(message)

        refusal = self._check_request(scope)
        if refusal is not None:
            await _send_problem(send_with_headers, *refusal)
            return
        await self.app(scope, _limit_body(receive), send_with_headers)

    def _check_request(self, scope: Message) -> tuple[int, str] | None:
        """Return status and sentence of a refusal, or None."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not self._is_own_host(host):
            return 421, f"this server is not '{host}': open the address that it printed"
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return 403, f"a page of '{origin}' may not talk to this server: open the address that it printed"
        if scope["path"].startswith("/api/") and scope["path"] != "/api/session":
            kind, _, session = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not self.keys.is_valid(session):
                return 401, (
                    "this page is not signed in, or the server was restarted since: open the address that it printed; "
                    "everything that you did is saved"
                )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return _TOO_LARGE, _too_large_sentence()
        return None

    def _is_own_host(self, host: str) -> bool:
        """Compare names only: a forwarded port has another number. Any other name may be DNS rebinding."""
        name = _host_name(host)
        return name in self.hosts or (self.allows_any_address and _is_address(name))


def _limit_body(receive: Receive) -> Receive:
    """Count the bytes of a body as it arrives: it may have no length."""
    received_bytes = 0

    async def counting_receive() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > MAX_BODY_BYTES:
            raise RequestError(_too_large_sentence(), _TOO_LARGE)
        return message

    return counting_receive


async def _discard_body(receive: Receive) -> None:
    """Read and drop the rest of a body, up to a limit of bytes and time."""
    discarded_bytes = 0
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while discarded_bytes < _MAX_DISCARDED_BYTES:
                message = await receive()
                discarded_bytes += len(message.get("body", b""))
                if not message.get("more_body"):  # complete, or the client has disconnected
                    return
    except TimeoutError:
        pass


def _too_large_sentence() -> str:
    return f"a request may have {MAX_BODY_BYTES >> 20} MB at most: select fewer samples"


async def _send_problem(send: Send, status: int, problem: str) -> None:
    body = json.dumps({"problem": problem}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _own_names(host: str) -> set[str]:
    names = {"127.0.0.1", "localhost", "::1", host.lower()}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names


def _host_name(host: str) -> str:
    """Return the host without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
