"""The viewer as a running server: on the command line until Ctrl-C, in a notebook until it is stopped."""

from __future__ import annotations

import errno
import socket
import sys
import threading
import time
import warnings
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bigbatch.errors import Notice, Problem
from bigbatch.filters import FilterResult
from bigbatch.output.progress import show_progress
from bigbatch.viewer.document import FilterDocument
from bigbatch.viewer.sources import open_sources

DEFAULT_PORT = 8642
_FRAME_HEIGHT_PIXELS = 720
_START_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Where the server listens, and where it finds runs and data and writes exports."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    runs_dir: Path = Path("runs")
    data_dir: Path | None = None
    out: Path | None = None
    framed: bool = False  # whether a notebook may show the page in a frame
    announce: bool = False  # whether a new address is printed when one is used


class Server:
    """Serves the page of one or two filters. Each read of `url` returns an address that can be opened once."""

    def __init__(self, sources: Sequence[Path | str], options: ServerOptions | None = None) -> None:
        options = options or ServerOptions()
        try:
            import uvicorn

            from bigbatch.viewer.guard import SessionKeys, TimedProtocol, is_loopback
            from bigbatch.viewer.routes import ViewerRoutes, build_app
        except ImportError as error:
            raise Problem(
                "the viewer needs starlette and uvicorn: install them with  pip install 'bigbatch[view]'"
            ) from error
        self.host = options.host
        self.is_public = not is_loopback(options.host)
        self._keys = SessionKeys(self._print_next_address if options.announce else None)
        self._thread: threading.Thread | None = None
        self._socket = _bind_socket(options.host, options.port)
        self.port: int = self._socket.getsockname()[1]
        self.documents: list[FilterDocument] = []
        try:
            self.documents = open_documents(sources, options.data_dir, options.out)
            self._viewer = ViewerRoutes(self.documents, self._keys, options.runs_dir)
            config = uvicorn.Config(
                build_app(self._viewer, options.host, framed=options.framed),
                log_level="critical",  # problems are answered in a sentence; Ctrl-C during an export is not an error
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                http=TimedProtocol,
            )
            self._server: Any = uvicorn.Server(config)
        except BaseException:
            self._close()
            raise

    @property
    def url(self) -> str:
        """An address with a new one-time token."""
        name = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.port}/#token={self._keys.new_token()}"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        handle_exit = self._server.handle_exit

        def exit_at_once(number: int, frame: FrameType | None) -> None:
            self._viewer.changes.close()  # waiting requests would delay the exit
            handle_exit(number, frame)

        self._server.handle_exit = exit_at_once
        try:
            self._server.run(sockets=[self._socket])
        except KeyboardInterrupt:
            pass  # uvicorn raises the signal again when all is closed
        finally:
            self._close()

    def start(self) -> None:
        """Serve in a thread; return when the server answers."""
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise Problem(f"the server on port {self.port} did not start: try another port")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server. All changes are saved already."""
        self._viewer.changes.close()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._close()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _close(self) -> None:
        self._socket.close()
        for document in self.documents:
            document.close()

    def _print_next_address(self) -> None:
        print(f"to open it in another browser: {self.url}", flush=True)


def open_documents(sources: Sequence[Path | str], data_dir: Path | None, out: Path | None) -> list[FilterDocument]:
    """Open the files that are given; where one fails, none stays locked."""
    documents: list[FilterDocument] = []
    try:
        for source in open_sources(sources, data_dir):
            documents.append(FilterDocument(source, out))
    except BaseException:
        for document in documents:
            document.close()
        raise
    return documents


def _bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, on a free port where the given one is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        if port and getattr(error, "errno", None) == errno.EADDRINUSE:
            free = _bind_socket(host, 0)
            warnings.warn(Notice(f"port {port} is in use: took {free.getsockname()[1]} instead"), stacklevel=2)
            return free
        reason = getattr(error, "strerror", None) or error
        raise Problem(f"{host}:{port} cannot be listened on ({reason}): choose another --host or --port") from error


# -- on the command line


def serve(sources: Sequence[Path | str], options: ServerOptions, *, browser: bool) -> None:
    """Print the address, open it in the browser, and serve until Ctrl-C."""
    with show_progress(True):
        server = Server(sources, options)
    if server.is_public:
        warnings.warn(
            Notice(
                f"--host {server.host} lets other machines reach this server: whoever reads the address below, or the "
                "network traffic, which is not encrypted, can see the images and change the filter; "
                "from another machine use this machine's name in place of 127.0.0.1"
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
    logs = [str(document.log.path) for document in server.documents if document.revision]
    print(f"\nended; everything is saved in {', '.join(logs)}" if logs else "\nended; nothing was changed", flush=True)


# -- in a notebook

_running_servers: dict[tuple[Path, ...], Server] = {}


def view(
    source: Path | str | FilterResult | Sequence[Path | str | FilterResult],
    *,
    port: int = DEFAULT_PORT,
    runs_dir: Path | str = "runs",
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    show: bool = True,
) -> Server:
    """View a filter's result (or two, or features with labels) in a notebook's cell or in the browser.

    Returns at once: `.url` is an address for one opening, `.stop()` ends the server. A cell that runs again shows
    the server that it started before.
    """
    paths = []
    for one in source if isinstance(source, list | tuple) else [source]:
        path = one.path if isinstance(one, FilterResult) else one
        if not isinstance(path, str | Path):
            raise Problem(f"a {type(one).__name__} has no file to view: save it first with bigbatch.filters.save")
        paths.append(Path(path))
    key = tuple(path.resolve() for path in paths)
    server = _running_servers.get(key)
    if server is None or not server.is_running:
        for other in [other for other in _running_servers if set(other) & set(key)]:
            _running_servers.pop(other).stop()  # a file belongs to one server at a time
        options = ServerOptions(
            port=port,
            runs_dir=Path(runs_dir),
            data_dir=Path(data_dir) if data_dir else None,
            out=Path(out) if out else None,
            framed=True,
        )
        server = Server(paths, options)
        server.start()
        _running_servers[key] = server
    ipython = sys.modules.get("IPython")
    if show and ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        from IPython.display import IFrame, display

        display(IFrame(server.url, "100%", _FRAME_HEIGHT_PIXELS))
    elif show:  # a terminal has no frames
        webbrowser.open(server.url)
    return server
