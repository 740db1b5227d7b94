"""Who may talk to the server, and how much they may say."""

from __future__ import annotations

import http.client
import json
import socket

import httpx
import pytest
from viewer_pages import BASE, open_documents, open_page

from bigbatch.viewer import guard
from bigbatch.viewer.guard import MAX_BODY_BYTES
from bigbatch.viewer.server import Server, ServerOptions

GETS = [
    "documents",
    "0/columns/label",
    "0/neighbours/0",
    "0/sprite?samples=0",
    "0/image/0",
    "0/overrides",
    "0/accuracy",
]
GETS += ["changes?since=0", "0/exports/kept-1.npz"]
POSTS = ["0/clusters", "0/overrides", "0/undo", "0/redo", "0/settings", "0/export"]


@pytest.fixture
def server(kept):
    server = Server([kept], ServerOptions(port=0))
    server.start()
    yield server
    server.stop()


def raw(server, method, path, body=None, **headers):
    """As it stands, without the tidying that clients do."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def session_of(server):
    token = server.url.partition("#token=")[2]
    body = json.dumps({"token": token}).encode()
    return json.loads(raw(server, "POST", "/api/session", body, **{"content-length": str(len(body))})[1])["session"]


def test_a_token_opens_one_session_and_no_second(kept):
    with open_documents(kept) as opened, opened.client() as client:
        token = opened.keys.new_token()
        first, second = (client.post("/api/session", json={"token": token}) for _ in range(2))
        assert first.status_code == 200
        assert second.status_code == 403
        assert "used already" in second.json()["problem"]
        assert client.post("/api/session", json={"token": "guess"}).status_code == 403
        # another token is another session, and both hold
        other = client.post("/api/session", json={"token": opened.keys.new_token()}).json()["session"]
        for session in (first.json()["session"], other):
            answer = client.get("/api/documents", headers={"authorization": f"Bearer {session}"})
            assert answer.status_code == 200


def test_nothing_is_told_without_a_session(kept):
    with open_documents(kept) as opened, opened.client() as client:
        token = opened.keys.new_token()  # a token is no session
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": f"Bearer {token}"}, {"authorization": "x"}):
            answers = [client.get(f"/api/{path}", headers=wrong) for path in GETS]
            answers += [client.post(f"/api/{path}", headers=wrong, json={}) for path in POSTS]
            assert {answer.status_code for answer in answers} == {401}
            assert all("is saved" in answer.json()["problem"] for answer in answers)


def test_another_host_or_origin_is_sent_away(kept):
    with open_page(kept) as page:
        for host in (
            "evil.example",
            "evil.example:8642",
            "127.0.0.1.evil.example",
            "",
            "10.0.0.1",
            "127.0.0.1:8642@evil.example",
            "localhost:1@evil",
            "a@localhost",
            "[::1]evil",
            "localhost:99999999",
            "localhost/x",
        ):
            answer = page.get("documents", headers={"host": host})
            assert answer.status_code == 421, host
            assert "printed" in answer.json()["problem"]
            assert page.client.get("/", headers={"host": host}).status_code == 421
        for host in ("localhost:8642", "127.0.0.1:9000", "[::1]:8642"):  # a forwarded port has another number
            assert page.get("documents", headers={"host": host}).status_code == 200
        for origin in ("http://evil.example", "null", "https://127.0.0.1:8642", "http://127.0.0.1:1"):
            assert page.get("documents", headers={"origin": origin}).status_code == 403, origin
        assert page.get("documents", headers={"origin": BASE}).status_code == 200


def test_a_request_that_does_not_arrive_is_given_up(kept, monkeypatch):
    monkeypatch.setattr(guard, "RECEIVE_SECONDS", 0.2)
    server = Server([kept], ServerOptions(port=0))
    server.start()
    try:
        session = session_of(server)
        half_a_head = b"GET /api/documents HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "
        no_body = (
            f"POST /api/0/overrides HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {session}\r\n"
            "Content-Length: 50\r\n\r\n{"
        ).encode()
        for sent, answer in ((b"", b""), (half_a_head, b""), (no_body, b"HTTP/1.1 408")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
                sock.sendall(sent)
                assert sock.recv(100).startswith(answer)  # not a time-out of our own
    finally:
        server.stop()


def test_every_answer_carries_the_policy(kept):
    with open_page(kept) as page:
        for answer in (page.get("documents"), page.get("nothing"), page.get("documents", headers={"host": "x"})):
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'; img-src 'self' blob: data:; style-src 'self'")
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_large_body_is_refused_before_it_has_come(server):
    """100 MB are announced; the answer is there before the first megabyte was taken."""
    head = (
        f"POST /api/0/overrides HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {session_of(server)}\r\n"
        f"Content-Length: {100 << 20}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(head.encode())
        answer = b""
        while b"}" not in answer:
            answer += sock.recv(4096)
        assert b" 413 " in answer.partition(b"\r\n")[0]
        assert b"8 MB at most" in answer


@pytest.mark.parametrize("announced", [True, False])
def test_who_says_100_mb_before_listening_gets_the_answer_too(server, announced):
    pieces = (b" " * (1 << 20) for _ in range(100))
    headers = {"authorization": f"Bearer {session_of(server)}"} | (
        {"content-length": str(100 << 20)} if announced else {}
    )
    answer = httpx.post(f"http://127.0.0.1:{server.port}/api/0/overrides", content=pieces, headers=headers, timeout=60)
    assert answer.status_code == 413
    assert "8 MB at most" in answer.json()["problem"]


def test_patience_with_a_large_body_has_an_end(server):
    head = (
        f"POST /api/0/overrides HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {session_of(server)}\r\n"
        f"Content-Length: {1 << 40}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(head.encode())
        sent = 0
        with pytest.raises(ConnectionError):  # it has hung up
            while sent < 2 << 30:
                sent += sock.send(b" " * (1 << 20))


def test_a_large_body_without_a_length_is_refused_too(server):
    head = (
        f"POST /api/0/overrides HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {session_of(server)}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(head.encode())
        for _ in range(MAX_BODY_BYTES >> 20):
            sock.sendall(piece)
        sock.sendall(b"10\r\n" + b" " * 16 + b"\r\n")
        assert b" 413 " in sock.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize("dots", ["..", "%2e%2e", "..%2f..%2fkept.npz", "%2e%2e%2fkept.npz", "..%5ckept.npz", "a%00b"])
def test_no_path_leads_out(server, dots):
    headers = {"authorization": f"Bearer {session_of(server)}"}
    places = [
        "/{}",
        "/static/{}",
        "/map/{}",
        "/map/{}/index.html",
        "/api/{}",
        "/api/{}/columns/label",
        "/api/0/{}",
        "/api/0/columns/{}",
    ]
    places += ["/api/0/neighbours/{}", "/api/0/image/{}", "/api/0/exports/{}", "/{}/kept.npz"]
    for place in places:
        status, body = raw(server, "GET", place.format(dots), **headers)
        assert status == 404, (place, status)
        assert json.loads(body)["problem"]


def test_the_page_is_served_without_a_session_and_nothing_else_is(server):
    status, page = raw(server, "GET", "/")
    assert status == 200
    assert page == raw(server, "GET", "/index.html")[1]
    assert b"<script" in page
    assert raw(server, "GET", "/map/panel.js")[0] == raw(server, "GET", "/styles/map.css")[0] == 200
    for name in (
        "/routes.py",
        "/__init__.py",
        "/static",
        "/INDEX.HTML",
        "/map",
        "/map/",
        "/map/api.js",
        "/map//panel.js",
    ):
        assert raw(server, "GET", name)[0] == 404
