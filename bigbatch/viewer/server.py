"""The viewer as a running server: on the command line until Ctrl-C, in a notebook until it is stopped."""

from __future__ import annotations

import errno
import shlex
import socket
import sys
import threading
import time
import warnings
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bigbatch.errors import Notice, Problem
from bigbatch.filters import Saved
from bigbatch.output.progress import show_progress
from bigbatch.viewer import app, sources
from bigbatch.viewer.changes import Changes
from bigbatch.viewer.document import Document
from bigbatch.viewer.guard import Keys, is_loopback

DEFAULT_PORT = 8642
_FRAME_HEIGHT_PIXELS = 720
_SECONDS_TO_START = 30.0


class Server:
    """Documents behind a port. `url` is good for one opening each time it is asked for."""

    def __init__(
        self,
        given: Sequence[Path | str],
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        runs_dir: Path = Path("runs"),
        data_dir: Path | None = None,
        out: Path | None = None,
        framed: bool = False,
        announce: bool = False,
    ) -> None:
        uvicorn = _uvicorn()
        self.host = host
        self._changes = Changes()
        self._keys = Keys(self._say_next_address if announce else None)
        self._thread: threading.Thread | None = None
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.documents: list[Document] = []
        try:
            self.documents = _documents(given, data_dir, out)
            viewer = app.Viewer(self.documents, self._keys, self._changes, runs_dir, shlex.join(_command()))
            config = uvicorn.Config(
                app.build(viewer, host, framed=framed),
                log_level="critical",  # what goes wrong is answered in a sentence; Ctrl-C in an export is no error
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
            )
            self._server = uvicorn.Server(config)
        except BaseException:
            self._close()
            raise

    @property
    def url(self) -> str:
        """With a fresh one-time token."""
        name = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}/#token={self._keys.new_token()}"

    def run(self) -> None:
        """Until SIGINT or SIGTERM."""
        begin_exit = self._server.handle_exit

        def exit_at_once(number: int, frame: Any) -> None:
            self._changes.close()  # tabs that wait would keep the server waiting
            begin_exit(number, frame)

        self._server.handle_exit = exit_at_once
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            pass  # uvicorn raises the signal again when all is closed
        finally:
            self._close()

    def start(self) -> None:
        """In a thread of its own; returns when it answers."""
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _SECONDS_TO_START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise Problem(f"the server on port {self.port} did not start: try another port")
            time.sleep(0.01)

    def stop(self) -> None:
        """Everything is saved already."""
        self._changes.close()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def where_saved(self) -> list[str]:
        """For people: the files that hold what was done."""
        return [str(document.log.path) for document in self.documents if document.revision]

    def _close(self) -> None:
        self._socket.close()
        for document in self.documents:
            document.close()

    def _say_next_address(self) -> None:
        print(f"to open it in another browser: {self.url}", flush=True)


def _documents(given: Sequence[Path | str], data_dir: Path | None, out: Path | None) -> list[Document]:
    documents: list[Document] = []
    try:
        for opened in sources.open_all(given, data_dir):
            documents.append(Document(opened, out))
    except BaseException:
        for document in documents:
            document.close()
        raise
    return documents


def _bound(host: str, port: int) -> socket.socket:
    """A listening socket; on another port where the one asked for is taken."""
    try:
        try:
            return _listening(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        free = _listening(host, 0)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Problem(f"{host}:{port} cannot be listened on ({reason}): choose another --host or --port") from error
    warnings.warn(Notice(f"port {port} is in use: took {free.getsockname()[1]} instead"), stacklevel=2)
    return free


def _listening(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen()
    except BaseException:
        sock.close()
        raise
    return sock


def _command() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def _uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError as error:
        raise Problem(
            "the viewer needs starlette and uvicorn: install them with  pip install 'bigbatch[view]'"
        ) from error
    return uvicorn


# -- on the command line


def serve(given: Sequence[Path | str], *, browser: bool, **options: Any) -> None:
    """Print the address, open it, and answer until Ctrl-C."""
    with show_progress(True):
        server = Server(given, announce=True, **options)
    if not is_loopback(server.host):
        warnings.warn(
            Notice(
                f"--host {server.host} lets other machines reach this server: whoever reads the address below, or the "
                "network traffic, which is not encrypted, can see the images and change the filter; "
                "from another machine put this one's name in the place of 127.0.0.1"
            ),
            stacklevel=2,
        )
    for document in server.documents:
        print(f"{document.path}: {len(document):,} samples, {len(document.classes)} classes", flush=True)
        for note in document.notes:
            print(f"  {note}", flush=True)
    print(f"open {server.url}   (Ctrl-C ends)", flush=True)
    if browser:
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    server.run()
    saved = server.where_saved()
    print(
        f"\nended; everything is saved in {', '.join(saved)}" if saved else "\nended; nothing was changed", flush=True
    )


# -- in a notebook

_open_views: dict[tuple[Path, ...], Server] = {}


def view(
    source: Path | str | Saved | Sequence[Path | str | Saved],
    *,
    port: int = DEFAULT_PORT,
    runs_dir: Path | str = "runs",
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    show: bool = True,
) -> Server:
    """Look over a filter's result (or two, or features with labels) in a notebook's cell or in the browser.

    Returns at once: `.url` is an address for one opening, `.stop()` ends the server. A cell that is run again shows
    the server that it had started.
    """
    several = list(source) if isinstance(source, list | tuple) else [source]
    given = [_path(one) for one in several]
    key = tuple(path.resolve() for path in given)
    server = _open_views.get(key)
    if server is None or not server.is_running:
        for other in [other for other in _open_views if set(other) & set(key)]:
            _open_views.pop(other).stop()  # a file belongs to one server at a time
        server = Server(
            given,
            port=port,
            runs_dir=Path(runs_dir),
            data_dir=Path(data_dir) if data_dir else None,
            out=Path(out) if out else None,
            framed=True,
        )
        server.start()
        _open_views[key] = server
    if show:
        _show(server.url)
    return server


def _path(source: Any) -> Path:
    if isinstance(source, Saved):
        return source.path
    if not isinstance(source, str | Path):
        raise Problem(f"a {type(source).__name__} has no file to view: save it first with bigbatch.filters.save")
    return Path(source)


def _show(url: str) -> None:
    """Below the cell where there is one, else in the browser."""
    display = _notebook_display()
    if display is None:
        webbrowser.open(url)
        return
    from IPython.display import IFrame

    display(IFrame(url, "100%", _FRAME_HEIGHT_PIXELS))


def _notebook_display() -> Any:
    """IPython's, in a kernel: a terminal has no frames."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
