"""Signal handlers for a time: asking a training to stop, passing signals on, unwinding on SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from bigbatch.output.terminal import reader_left


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Call the handler for these signals within the block. Only the main thread can; elsewhere nothing changes.

    A SIGHUP that is ignored, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = {number for number in numbers if signal.getsignal(number) is signal.SIG_IGN} & {signal.SIGHUP}
    previous = {number: signal.signal(number, handler) for number in numbers if number not in ignored}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


class StopRequest:
    """`received` becomes true with the first SIGTERM, SIGHUP or Ctrl-C, or when a command's stderr is a pipe whose
    reader has gone. A second Ctrl-C interrupts at once.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._handling = handle_signals(self._receive, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    @property
    def received(self) -> bool:
        return self._signalled or reader_left()

    def __enter__(self) -> StopRequest:
        self._handling.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handling.__exit__(kind, error, trace)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._signalled and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signalled = True
