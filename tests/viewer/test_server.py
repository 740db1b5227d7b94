"""The server as people start it: a process that is killed and stopped, and a notebook's cell."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import types
from contextlib import suppress

import httpx
import numpy as np
import pytest
from viewer_pages import Page

import bigbatch
from bigbatch import cli, filters
from bigbatch.errors import Notice, Problem
from bigbatch.viewer.server import Server, ServerOptions


class Process:
    """`bigbatch view`, and a page of it that has signed in."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "bigbatch", "view", "--no-browser", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address, token = self._address().split("/#token=")
        client = httpx.Client(base_url=self.address, timeout=60)
        self.page = Page(client, client.post("/api/session", json={"token": token}).json()["session"])

    def _address(self):
        for line in self.process.stdout:
            found = re.search(r"open (http://\S+#token=\S+)", line)
            if found:
                return found.group(1)
        raise AssertionError(self.process.stderr.read())

    def end(self, number):
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=30)
        self.page.client.close()
        return self.process.returncode, output, errors


def wait_for_changes(page):
    """As a tab does; the server may be gone before it has asked."""
    with suppress(httpx.HTTPError):
        page.get("changes?since=99")


@pytest.fixture
def start():
    started = []

    def start(*arguments):
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def test_a_killed_server_has_saved_everything_and_ctrl_c_says_where(kept, start):
    first = start(kept, "--port", 0, "--host", "0.0.0.0")
    for sample in range(5):
        first.page.post("0/overrides", {"action": "drop", "reason": "dark", "samples": [sample]})
    first.page.set(drop=0.2)
    about, log = first.page.about(), first.page.get("0/overrides").json()
    code, _, errors = first.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "lets other machines reach this server" in errors

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        second = start(kept, "--port", port)
        assert second.address != f"http://127.0.0.1:{port}"
        assert second.page.about() == about
        assert second.page.get("0/overrides").json() == log
        assert (second.page.column("override", "i1")[:5] == 0).all()
        old_session = {"authorization": first.page.client.headers["authorization"]}
        answer = second.page.get("documents", headers=old_session)
        assert answer.status_code == 401
        assert "restarted" in answer.json()["problem"]

        waiting = threading.Thread(target=wait_for_changes, args=(second.page,))
        waiting.start()
        code, output, errors = second.end(signal.SIGINT)  # at once, though a tab is waiting for changes
        waiting.join(timeout=30)
    assert code == 0
    assert f"everything is saved in {kept.with_name('kept.view.jsonl')}" in output
    assert "to open it in another browser: http://127.0.0.1" in output
    assert f"port {port} is in use: took" in errors
    assert "Traceback" not in errors


def test_wrong_input_is_one_sentence(tmp_path, capsys):
    (tmp_path / "cut.npz").write_bytes(b"PK")
    with pytest.raises(SystemExit) as ended:
        cli.main(["view", str(tmp_path / "cut.npz"), "--no-browser"])
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith("bigbatch: ")
    assert "cannot be read" in errors
    assert errors.count("\n") == 1


def test_a_port_in_use_gives_way_to_another(kept):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.warns(Notice, match=rf"port {port} is in use: took \d+ instead"):
            server = Server([kept], ServerOptions(port=port))
        server.stop()
    with pytest.raises(Problem, match="cannot be listened on"):
        Server([kept], ServerOptions(host="192.0.2.1", port=0))
    with pytest.raises(Problem, match="cannot be listened on"):
        Server([kept], ServerOptions(port=70_000))
    Server([kept], ServerOptions(port=0)).stop()  # and nothing holds the file


def test_other_machines_may_come_by_address_when_the_host_lets_them(kept):
    server = Server([kept], ServerOptions(host="0.0.0.0", port=0))
    server.start()
    try:
        address = server.url.partition("/#")[0]
        for host, status in (("192.0.2.7:80", 200), (socket.gethostname(), 200), ("evil.example", 421)):
            assert httpx.get(address, headers={"host": host}).status_code == status
    finally:
        server.stop()


def test_view_returns_a_server_that_answers_until_it_is_stopped(kept, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    server = bigbatch.view(kept, port=0)
    try:
        again = bigbatch.view(str(kept), port=0)  # a cell that is run twice
        assert again is server
        assert len(set(opened)) == 2  # each address opens once
        for url in opened:
            address, token = url.split("/#token=")
            client = httpx.Client(base_url=address)
            page = Page(client, client.post("/api/session", json={"token": token}).json()["session"])
            page.post("0/overrides", {"action": "drop", "samples": [3]})
        # a notebook may show it in a frame
        assert "frame-ancestors" not in page.get("documents").headers["content-security-policy"]
        assert np.flatnonzero(page.column("override", "i1") == 0).tolist() == [3]
    finally:
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)
    fresh = bigbatch.view(filters.load(kept), port=0, show=False)  # what was saved knows its file
    assert fresh is not server
    assert fresh.documents[0].revision == 2
    fresh.stop()
    with pytest.raises(Problem, match="save it first"):
        bigbatch.view(np.zeros(3))


def test_a_notebook_gets_a_frame(kept, monkeypatch):
    """IPython is not among the tools of these tests: what is used of it stands in."""
    frames = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display.display, display.IFrame = frames.append, lambda *arguments: arguments
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("a browser was opened beside the notebook"))
    server = bigbatch.view(kept, port=0)
    server.stop()
    ((url, width, _),) = frames
    assert url.startswith(f"http://127.0.0.1:{server.port}/#token=")
    assert width == "100%"
