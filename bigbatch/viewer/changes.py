"""Notifies requests that wait for a change, in whatever event loop they wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class ChangeNotifier:
    """Requests wait for a change; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def wait_until(self, changed: Callable[[], bool], seconds: float) -> None:
        """Wait until `changed()`, until the time is over, or until the server ends."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((loop, event))
        try:
            # checked after the event is registered, so that no change in between is missed
            while not changed() and not self._closed:
                event.clear()
                async with asyncio.timeout_at(deadline):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard((loop, event))

    def notify(self) -> None:
        with self._lock:
            for loop, event in self._waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        self._closed = True
        self.notify()
