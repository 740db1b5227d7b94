"""Signal handlers hold for a block, and are put back."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest

from bigbatch.launch.signals import StopRequest, handle_signals
from bigbatch.output.terminal import GuardedStream


def send(number: int) -> None:
    os.kill(os.getpid(), number)  # Python runs the handler before the next instruction of the main thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_request_remembers_the_first_signal(number):
    before = signal.getsignal(number)
    with StopRequest() as request:
        assert not request.received
        send(number)
        assert request.received
    assert signal.getsignal(number) is before


def test_a_sighup_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with StopRequest() as request:
            send(signal.SIGHUP)
            assert not request.received
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_pipe_whose_reader_has_gone_is_a_request_to_stop(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream, StopRequest() as request:
        monkeypatch.setattr(sys, "stderr", GuardedStream(stream))
        assert not request.received
        print("a line", file=sys.stderr)
        assert request.received


def test_a_second_ctrl_c_interrupts_at_once():
    with StopRequest():
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_second_sigterm_changes_nothing():
    with StopRequest() as request:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert request.received


def test_handlers_are_put_back_after_an_error():
    before, received = signal.getsignal(signal.SIGUSR1), []
    with pytest.raises(ValueError), handle_signals(lambda number, _: received.append(number), signal.SIGUSR1):
        send(signal.SIGUSR1)
        raise ValueError
    assert received == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is before


def test_in_another_thread_nothing_is_handled_and_nothing_breaks():
    results = []

    def work() -> None:
        with StopRequest() as request:
            results.append(request.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [False]
