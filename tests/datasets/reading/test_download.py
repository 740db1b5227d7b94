"""Downloads against a real server on this machine that can do all that servers do wrong."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bigbatch.datasets import cifar10, fashion_mnist, mnist, ptb
from bigbatch.datasets.reading.download import FileSet, Remote, locate_or_download, read_decompressed
from bigbatch.errors import Problem

CONTENT = bytes(range(256)) * 4000  # 1,024,000 bytes: several reads, and no two neighbours alike


@dataclass
class Server:
    """What is served and how badly; what was asked for is written down."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)  # bytes sent in the next answers before the connection is cut
    asked: list[str | None] = field(default_factory=list)  # the Range header of each request
    address: str = ""


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.asked.append(asked)
            content = server.files.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else None
            if start is not None and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(200 if start is None else 206)
            if start is not None:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            rest = content[start or 0 :]
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: server.cut_after.pop(0)] if server.cut_after else rest)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(files={"data.bin": CONTENT})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(state)) as running:
        state.address = f"http://127.0.0.1:{running.server_address[1]}/"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIGBATCH_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def one_file(checksum: str = md5(CONTENT)) -> FileSet:
    remote = Remote("data.bin", checksum, len(CONTENT), folder="sub")
    return FileSet("Test set", (("sub/data.bin",),), "http://127.0.0.1:9/official/", (remote,))


def visible(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name[0] != ".")


def test_a_missing_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    for _ in range(2):
        (path,) = locate_or_download(one_file(), tmp_path, address=server.address)
    assert path == tmp_path / "sub/data.bin"
    assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert visible(tmp_path) == ["sub/data.bin"]


def test_a_cut_connection_is_continued_where_it_was_cut(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 5]
    (path,) = locate_or_download(one_file(), tmp_path, address=server.address)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=300005-"]


def test_a_stopped_download_is_continued_by_the_next_call(server: Server, tmp_path: Path) -> None:
    server.cut_after = [300_000, 0, 0, 0]
    with pytest.raises(Problem, match=r"data\.bin.*cut after 300,000 bytes.*put data\.bin into .*sub"):
        locate_or_download(one_file(), tmp_path, address=server.address)
    assert visible(tmp_path) == ["sub/data.bin.part"]
    (path,) = locate_or_download(one_file(), tmp_path, address=server.address)
    assert path.read_bytes() == CONTENT
    assert server.asked[-1] == "bytes=300000-"
    assert visible(tmp_path) == ["sub/data.bin"]


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after = [300_000]
    (path,) = locate_or_download(one_file(), tmp_path, address=server.address)
    assert path.read_bytes() == CONTENT  # appending would have given 1,324,000 bytes


@pytest.mark.parametrize("left_over", [CONTENT, CONTENT + b"more", b"another file" * 100])
def test_any_part_file_that_was_left_ends_in_the_right_file(server: Server, tmp_path: Path, left_over: bytes) -> None:
    part = tmp_path / "sub/data.bin.part"
    part.parent.mkdir()
    part.write_bytes(left_over)
    (path,) = locate_or_download(one_file(), tmp_path, address=server.address)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.files["data.bin"] = CONTENT[:-1]
    with pytest.raises(Problem, match=r"data\.bin: expected 1,024,000 bytes.*got 1,023,999 bytes"):
        locate_or_download(one_file(), tmp_path, address=server.address)
    assert visible(tmp_path) == []


def test_404_names_file_address_and_folder(server: Server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(Problem) as caught:
        locate_or_download(one_file(), tmp_path, address=server.address)
    for part in ("Test set", f"{server.address}data.bin", "answered 404", f"put data.bin into {tmp_path / 'sub'}"):
        assert part in str(caught.value)


def test_without_a_network_the_official_address_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"http://127\.0\.0\.1:9/official/data\.bin .*refused.*put data\.bin into"):
        locate_or_download(one_file(), tmp_path)


def test_folders_are_searched_in_order_and_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = FileSet("Two", (("a", "b"),), "http://127.0.0.1:9/", ())
    given, named, home = tmp_path / "given", tmp_path / "named", tmp_path / "home/.cache/bigbatch/datasets"
    for folder, names in ((given, "a"), (named, "ab"), (home, "ab")):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    assert locate_or_download(two, None) == [home / "a", home / "b"]
    monkeypatch.setenv("BIGBATCH_DATA", str(named))
    assert locate_or_download(two, None) == [named / "a", named / "b"]
    assert locate_or_download(two, given) == [named / "a", named / "b"]  # given lacks b
    (given / "b.gz").touch()
    assert locate_or_download(two, given) == [given / "a", given / "b.gz"]


def archive(members: dict[str, bytes], link: str | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(entry)
    return buffer.getvalue()


def archive_set(packed: bytes, **members: str) -> FileSet:
    wanted = {"set/a.txt": members.get("a", ""), "set/b.txt": members.get("b", "")}
    remote = Remote("set.tgz", md5(packed), len(packed), members=wanted)
    return FileSet("Archive set", (tuple(wanted),), "http://127.0.0.1:9/", (remote,))


def test_only_expected_members_are_unpacked(server: Server, tmp_path: Path) -> None:
    packed = archive({"./set/a.txt": b"A", "../evil.txt": b"!", "/set/abs.txt": b"!", "set/c": b"!", "set/b.txt": b"B"})
    server.files["set.tgz"] = packed
    folder = tmp_path / "data"
    a, b = locate_or_download(archive_set(packed), folder, address=server.address)
    assert (a.read_bytes(), b.read_bytes()) == (b"A", b"B")
    assert visible(tmp_path) == ["data/set/a.txt", "data/set/b.txt"]  # neither the archive nor anything else


def test_a_link_in_place_of_a_member_is_not_followed(server: Server, tmp_path: Path) -> None:
    packed = archive({"set/b.txt": b"B"}, link="set/a.txt")
    server.files["set.tgz"] = packed
    with pytest.raises(Problem, match=r"set/a\.txt is missing"):
        locate_or_download(archive_set(packed), tmp_path, address=server.address)
    assert not (tmp_path / "set").exists()


def test_a_member_with_another_checksum_unpacks_nothing(server: Server, tmp_path: Path) -> None:
    packed = archive({"set/a.txt": b"A", "set/b.txt": b"B"})
    server.files["set.tgz"] = packed
    with pytest.raises(Problem, match=r"set\.tgz is not the published archive .*b\.txt has another checksum"):
        locate_or_download(archive_set(packed, b=md5(b"other")), tmp_path, address=server.address)
    assert not (tmp_path / "set").exists()


def test_an_archive_that_a_person_put_there_is_used_and_kept(tmp_path: Path) -> None:
    packed = archive({"set/a.txt": b"A", "set/b.txt": b"B"})
    (tmp_path / "set.tgz").write_bytes(packed)
    a, _ = locate_or_download(archive_set(packed), tmp_path)
    assert a.read_bytes() == b"A"
    assert (tmp_path / "set.tgz").exists()


def test_a_cut_archive_is_refused_by_name_and_size(tmp_path: Path) -> None:
    packed = archive({"set/a.txt": CONTENT, "set/b.txt": b"B"})
    (tmp_path / "set.tgz").write_bytes(packed[:1000])
    with pytest.raises(Problem, match=rf"set\.tgz .*expected {len(packed):,} bytes .*found 1,000 bytes"):
        locate_or_download(archive_set(packed), tmp_path)
    assert visible(tmp_path) == ["set.tgz"]


def test_four_processes_worth_of_threads_download_once(server: Server, tmp_path: Path) -> None:
    found: list[list[Path]] = []

    def want() -> None:
        found.append(locate_or_download(one_file(), tmp_path, address=server.address))

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[tmp_path / "sub/data.bin"]] * 4
    assert server.asked == [None]


def test_a_cut_gz_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(CONTENT))
    assert read_decompressed(path) == CONTENT
    path.write_bytes(gzip.compress(CONTENT)[:-100])
    with pytest.raises(Problem, match=r"labels\.gz \([\d,]+ bytes\) cannot be read"):
        read_decompressed(path)


@pytest.mark.parametrize("part", [cifar10, fashion_mnist, mnist, ptb], ids=lambda part: part.__name__)
def test_what_would_be_downloaded_is_a_complete_layout(part: Any) -> None:
    files: FileSet = part.FILES
    landed = {
        name.removesuffix(".gz")
        for remote in files.remotes
        for name in remote.members or [f"{remote.folder}/{remote.name}"]
    }
    assert landed in [set(layout) for layout in files.layouts]
    assert files.address.endswith("/")
    for remote in files.remotes:  # whatever is fetched can be told from what is not it
        assert remote.checksum or all(remote.members.values())


def test_a_folder_that_cannot_be_written_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Problem, match=r"Test set cannot be written to .*file/sub .*choose another folder"):
        locate_or_download(one_file(), tmp_path / "file", address=server.address)


def test_a_download_that_does_not_end_is_cut_off(server: Server, tmp_path: Path) -> None:
    """Three times the published size and more: what was written is removed."""
    server.files["x"] = bytes(4 << 20)
    wanted = FileSet("X", (("x",),), server.address, (Remote("x", "md5:0", size=1_000_000),))
    with pytest.raises(Problem, match=r"the server sent more than 3,048,576 bytes"):
        locate_or_download(wanted, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
