"""A process that has imported everything once and forks a `bigbatch train` for each run: 4 CPU seconds less for each.

It reads requests from its standard input and writes answers to its standard output,
one JSON object a line. It computes nothing itself, so that no thread pool exists that a fork would break. When its
input ends, because the worker has ended or was killed, it asks the trainings to stop, and waits for them.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# slow to import, and imported only when used: by every torch optimizer, and by some datasets
_ALWAYS_USED = "torch._dynamo"
_SLOW_IMPORTS = {"digits": "sklearn.datasets"}


def slow_imports(datasets: Sequence[str]) -> list[str]:
    """Names of modules that trainings on these datasets import late."""
    return [_ALWAYS_USED, *sorted({_SLOW_IMPORTS[name] for name in datasets if name in _SLOW_IMPORTS})]


class Forks:
    """The worker's side."""

    def __init__(self, threads: int, datasets: Sequence[str] = ()) -> None:
        self._threads = threads
        self._preload = slow_imports(datasets)
        self._server: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._started = 0
        self.codes: dict[int, int | None] = {}  # exit codes, None for what runs

    def start(self, arguments: Sequence[str], log: Path) -> int:
        """A number for the new process."""
        self._started += 1
        self.codes[self._started] = None
        self._send({"id": self._started, "arguments": list(arguments), "log": str(log)})
        return self._started

    def signal(self, number: int, which: signal.Signals) -> None:
        if self.code(number) is None:
            self._send({"id": number, "signal": int(which)})
            if self._server and which == signal.SIGTERM:
                self._server.terminate()  # a server that still imports has forked nothing, and ends; others do not hear

    def code(self, number: int) -> int | None:
        """The exit code (minus the signal that killed it), or None while it runs."""
        self._read()
        return self.codes[number]

    def wait(self, number: int) -> int:
        while (code := self.code(number)) is None:
            assert self._server is not None
            assert self._server.stdout
            with selectors.DefaultSelector() as selector:
                selector.register(self._server.stdout, selectors.EVENT_READ)
                selector.select()
        return code

    def close(self) -> None:
        """Ask what still runs to stop, and wait for it."""
        if self._server:
            assert self._server.stdin
            self._server.stdin.close()
            self._server.wait()
            self._server = None

    def _send(self, request: dict[str, Any]) -> None:
        if self._server is None:
            # in a session of its own, so that Ctrl-C reaches trainings through the worker alone
            self._server = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import serve; serve()", *self._preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": str(self._threads)},
            )
            assert self._server.stdout
            os.set_blocking(self._server.stdout.fileno(), False)
        assert self._server.stdin
        try:
            self._server.stdin.write(json.dumps(request).encode() + b"\n")
            self._server.stdin.flush()
        except BrokenPipeError:
            self._lost()

    def _read(self) -> None:
        while self._server is not None:
            assert self._server.stdout
            try:
                piece = os.read(self._server.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return
            if not piece:
                self._lost()
                return
            *lines, self._pending = (self._pending + piece).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self.codes[answer["id"]] = answer["code"]

    def _lost(self) -> None:
        """Somebody killed the server. Its trainings may go on for now; their folders' locks tell."""
        self.codes = {number: -signal.SIGKILL if code is None else code for number, code in self.codes.items()}
        if self._server:
            self._server.kill()
            self._server.wait()
        self._server, self._pending = None, b""


def serve() -> None:
    """The server's side. What is imported here, children need not import."""
    for name in ("bigbatch.cli", "bigbatch.launch.processes", "bigbatch.recipes", "bigbatch.training", *sys.argv[1:]):
        importlib.import_module(name)
    running: dict[int, int] = {}  # pid -> id
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    # the worker decides. Blocked and not ignored: a child that is asked to stop before it can listen hears of it later
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.buffer.fileno(), selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    pending, ends = b"", False
    while running or not ends:
        for key, _ in selector.select():
            piece = os.read(key.fd, 1 << 16)
            if key.fd == woken:
                continue
            if not piece:
                ends = True
                selector.unregister(key.fd)
                for pid in running:
                    os.kill(pid, signal.SIGTERM)
            *lines, pending = (pending + piece).split(b"\n")
            for line in lines:
                _obey(json.loads(line), running)
        _reap(running)


def _obey(request: dict[str, Any], running: dict[int, int]) -> None:
    if "signal" in request:
        for pid, number in running.items():
            if number == request["id"]:
                os.kill(pid, request["signal"])
        return
    pid = os.fork()
    if pid:
        running[pid] = request["id"]
    else:
        _become(request["arguments"], request["log"])


def _become(arguments: list[str], log: str) -> None:
    """The child: from here on a `bigbatch` like any other, with its output in a file."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.argv = ["bigbatch", *arguments]
        from bigbatch.cli import main

        main(arguments)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # what the server has open is not ours to close


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        answer = {"id": running.pop(pid), "code": os.waitstatus_to_exitcode(status)}
        with suppress(BrokenPipeError):  # the worker may be gone
            os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")
