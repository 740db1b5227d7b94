"""Access control: only the server's own page, in the browser that opened the printed address, with small requests."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import secrets
import socket
from collections.abc import Callable
from typing import cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from bigbatch.viewer.requests import RequestError

MAX_BODY_BYTES = 8 << 20
_MAX_DISCARDED_BYTES = 256 << 20
_DISCARD_SECONDS = 5.0
RECEIVE_SECONDS = 30.0  # for all of a request: one that trickles in would hold its connection for ever
_KEY_BYTES = 32
_TOO_LARGE = 413
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^][:@/?#\s]+))(?::[0-9]{1,5})?")  # no user, no path
_CONTENT_POLICY = "default-src 'self'; img-src 'self' blob: data:; style-src 'self'"


class SessionKeys:
    """One-time tokens, each valid for one session; sessions last as long as the server."""

    def __init__(self, on_token_used: Callable[[], None] | None = None) -> None:
        self._tokens: set[bytes] = set()
        self._sessions: set[bytes] = set()
        self._on_token_used = on_token_used or (lambda: None)

    def new_token(self) -> str:
        return _add_key(self._tokens)

    def exchange_token(self, token: str) -> str | None:
        """Return a new session; None for a token that is unknown or was used already."""
        if _digest(token) not in self._tokens:
            return None
        self._tokens.discard(_digest(token))
        session = _add_key(self._sessions)
        self._on_token_used()
        return session

    def is_valid(self, session: str) -> bool:
        return _digest(session) in self._sessions


def _add_key(keys: set[bytes]) -> str:
    key = secrets.token_urlsafe(_KEY_BYTES)
    keys.add(_digest(key))
    return key


def _digest(key: str) -> bytes:
    """Keys are looked up by hash, so that the time it takes does not depend on the key."""
    return hashlib.sha256(key.encode()).digest()


class RequestGuard:
    """ASGI middleware that checks Host, Origin, session and size of every request."""

    def __init__(self, app: ASGIApp, keys: SessionKeys, host: str, *, framed: bool = False) -> None:
        self.app, self.keys = app, keys
        self.hosts = {"127.0.0.1", "localhost", "::1", host.lower()}
        self.allows_any_address = not is_loopback(host)
        if self.allows_any_address:
            self.hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self.headers = {
            "content-security-policy": _CONTENT_POLICY if framed else f"{_CONTENT_POLICY}; frame-ancestors 'none'",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no websockets

        received_bytes = 0
        body_complete = too_large = False
        deadline = asyncio.get_running_loop().time() + RECEIVE_SECONDS

        async def receive_limited() -> Message:
            """Count the bytes of a body as it arrives: it may have no length."""
            nonlocal received_bytes, body_complete
            try:
                async with asyncio.timeout_at(None if body_complete else deadline):
                    message = await receive()
            except TimeoutError:
                raise RequestError("the request did not arrive in time: try again", 408) from None
            received_bytes += len(message.get("body", b""))
            body_complete = not message.get("more_body", False)
            if received_bytes > MAX_BODY_BYTES:
                raise _too_large_error()
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal too_large
            if message["type"] == "http.response.start":
                too_large = message["status"] == _TOO_LARGE
                headers = MutableHeaders(scope=message)
                headers.setdefault("cache-control", "no-store")
                headers.update(self.headers | ({"connection": "close"} if too_large else {}))
            elif too_large:
                # a client whose connection closes while it still sends may never read the answer
                await send({**message, "more_body": True})
                await _discard_body(receive)
                message = {"type": "http.response.body"}
            await send(message)

        try:
            self._check_request(scope)
        except RequestError as error:
            await JSONResponse({"problem": str(error)}, error.status)(scope, receive, send_with_headers)
            return
        await self.app(scope, receive_limited, send_with_headers)

    def _check_request(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # names only: a forwarded port has another number. Any other name may be DNS rebinding
        parsed = _HOST.fullmatch(host)
        name = parsed[1] or parsed[2] if parsed else ""
        if name.lower() not in self.hosts and not (self.allows_any_address and _is_address(name)):
            raise RequestError(f"this server is not '{host}': open the address that it printed", 421)
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            raise RequestError(
                f"a page of '{origin}' may not talk to this server: open the address that it printed", 403
            )
        if scope["path"].startswith("/api/") and scope["path"] != "/api/session":
            kind, _, session = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not self.keys.is_valid(session):
                raise RequestError(
                    "this page is not signed in, or the server was restarted since: open the address that it printed; "
                    "everything that you did is saved",
                    401,
                )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise _too_large_error()


class TimedProtocol(H11Protocol):
    """Closes a connection on which no request arrives in time; uvicorn waits for ever for the rest of its headers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self.loop.call_later(RECEIVE_SECONDS, self._close_if_still_after, self.cycle)

    def _close_if_still_after(self, last_request: object) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is last_request and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        else:
            self.loop.call_later(RECEIVE_SECONDS, self._close_if_still_after, self.cycle)


def _too_large_error() -> RequestError:
    return RequestError(f"a request may have {MAX_BODY_BYTES >> 20} MB at most: select fewer samples", _TOO_LARGE)


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


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
