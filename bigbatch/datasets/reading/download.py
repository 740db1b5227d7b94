"""The files of a dataset: found on this machine, or downloaded from their authors, checked and unpacked.

Folders are searched in this order: the one given, $BIGBATCH_DATA, ~/.cache/bigbatch/datasets. A set is taken from the
first folder that has all of its files, never from two; a missing set is downloaded into the first.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import os
import posixpath
import re
import ssl
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bigbatch.errors import Problem
from bigbatch.output.progress import Advance, show_progress, stage

_SECONDS_WITHOUT_AN_ANSWER = 30.0
_ATTEMPTS_WITHOUT_PROGRESS = 3
_BYTES_PER_READ = 1 << 18


@dataclass(frozen=True)
class Remote:
    """A file on a server. Of an archive only the named members are extracted, each with its own checksum or ""."""

    name: str
    checksum: str  # "md5:<hex>" or "sha256:<hex>"; "" where only the members' checksums are known
    size: int  # bytes, for progress, and for the message about an incomplete file
    folder: str = ""  # where the file belongs below the data folder; members keep their own paths
    members: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSet:
    """The files of one dataset: where they may be below a data folder, and where they come from."""

    title: str
    layouts: tuple[tuple[str, ...], ...]  # each a complete set of files, which may also be there as .gz
    address: str  # the folder on the server, ending in /
    remotes: tuple[Remote, ...]


def locate_or_download(wanted: FileSet, data_dir: Path | None, *, address: str | None = None) -> list[Path]:
    """Return the files of a layout, in its order. Another address is a mirror with the same files."""
    folders = data_folders(data_dir)
    for folder in folders:
        if found := _find_files(wanted, folder):
            return found
    for remote in wanted.remotes:
        _download_and_unpack(wanted.title, remote, folders[0], address or wanted.address)
    if found := _find_files(wanted, folders[0]):
        return found
    raise Problem(f"{wanted.title} was downloaded into {folders[0]} but is not there any more: run the command again")


def data_folders(data_dir: Path | None) -> list[Path]:
    """Return the folders where datasets are looked for, first to last."""
    named = [data_dir, os.environ.get("BIGBATCH_DATA"), "~/.cache/bigbatch/datasets"]
    return [Path(folder).expanduser() for folder in named if folder]


def _find_files(wanted: FileSet, folder: Path) -> list[Path] | None:
    for layout in wanted.layouts:
        plain_or_gz = ((folder / name, folder / f"{name}.gz") for name in layout)
        found = [next((path for path in pair if path.is_file()), None) for pair in plain_or_gz]
        if all(found):
            return [path for path in found if path]
    return None


def _download_and_unpack(title: str, remote: Remote, folder: Path, address: str) -> None:
    """Download one file, or use the one that a person has put there; unpack an archive."""
    target = folder / remote.folder / remote.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock_download(target):
            if all((folder / member).is_file() for member in remote.members or [target.relative_to(folder)]):
                return  # another process was faster
            already_there = target.is_file()
            if not already_there:
                _download(title, remote, target, address + remote.name)
            elif _checksum(target, remote.checksum) != remote.checksum:
                raise Problem(
                    f"{target} is not the published file: expected {remote.size:,} bytes with {remote.checksum}, "
                    f"found {target.stat().st_size:,} bytes; delete it to have it downloaded again"
                )
            if remote.members:
                _unpack(target, remote, folder)
                if not already_there:
                    target.unlink()
    except OSError as error:
        raise Problem(
            f"{title} cannot be written to {target.parent} ({error.strerror or error}): "
            "make room there or choose another folder with $BIGBATCH_DATA"
        ) from error


@contextlib.contextmanager
def _lock_download(target: Path) -> Iterator[None]:
    """Hold a lock: the ranks of a run need the same file at the same time."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where runs have one process
        yield
        return
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(title: str, remote: Remote, target: Path, url: str) -> None:
    """Download into a .part file that a later attempt continues; rename it once the checksum is right."""
    part = target.with_name(f"{target.name}.part")
    resumed = part.exists()
    _download_bytes(title, remote, part, url, target)
    if resumed and _checksum(part, remote.checksum) != remote.checksum:
        part.unlink()  # the first bytes were of another file: start over
        _download_bytes(title, remote, part, url, target)
    if _checksum(part, remote.checksum) != remote.checksum:
        found_bytes = part.stat().st_size
        part.unlink()
        raise Problem(
            f"{url} is not the published {remote.name}: expected {remote.size:,} bytes with {remote.checksum}, "
            f"got {found_bytes:,} bytes with another checksum; try again later, or put the file into {target.parent}"
        )
    os.replace(part, target)


def _download_bytes(title: str, remote: Remote, part: Path, url: str, target: Path) -> None:
    """Download all bytes of the address into `part`; continue after a broken connection."""
    failures = 0
    most_bytes = 2 * remote.size + (1 << 20)  # a mirror may have packed it differently

    def cannot_download(reason: str) -> Problem:
        return Problem(
            f"{title} is not on this machine and {url} cannot be downloaded ({reason}): "
            f"put {remote.name} into {target.parent}, or try again when there is a network"
        )

    with show_progress(sys.stderr.isatty()), stage(f"downloading {title}", remote.size) as advance:
        while failures < _ATTEMPTS_WITHOUT_PROGRESS:
            before = _size(part)
            reason = "the connection was cut"
            try:
                if _download_over_one_connection(part, url, advance, most_bytes):
                    return
            except urllib.error.HTTPError as error:
                raise cannot_download(f"the server answered {error.code}") from error
            except urllib.error.URLError as error:
                raise cannot_download(str(error.reason)) from error
            except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
                reason = str(error)
            failures = 0 if _size(part) > before else failures + 1
    raise cannot_download(f"{reason} after {_size(part):,} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _download_over_one_connection(part: Path, url: str, advance: Advance, most_bytes: int) -> bool:
    """Download over one connection; return False if it ended before the announced length."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_SECONDS_WITHOUT_AN_ANSWER)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return True  # the last attempt got all bytes, but was stopped before the rename
        part.unlink()
        return False
    with response:
        continued = re.match(rf"bytes {have}-", response.headers.get("Content-Range", "")) is not None
        if response.status != http.client.PARTIAL_CONTENT or not continued:
            have = 0  # the server sends the file from its start
        length = response.headers.get("Content-Length")
        expected = have + int(length) if length and length.isdecimal() else None
        with open(part, "ab" if have else "wb") as file:
            while block := response.read(_BYTES_PER_READ):
                file.write(block)
                have += len(block)
                advance(have)
                if have > most_bytes:
                    part.unlink()
                    raise urllib.error.URLError(f"the server sent more than {most_bytes:,} bytes")
    return expected is None or have == expected


def _checksum(path: Path, like: str) -> str:
    """Return the checksum of a file, of the same kind as another one."""
    kind = like.partition(":")[0]
    if not kind:
        return ""
    with open(path, "rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _unpack(archive: Path, remote: Remote, folder: Path) -> None:
    """Extract the expected members and no others, all of them or none."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as name:
        scratch = Path(name)

        def broken(reason: str) -> Problem:
            return Problem(
                f"{archive} is not the published archive ({reason}): expected {remote.size:,} bytes, "
                f"found {archive.stat().st_size:,}; delete it to have it downloaded again"
            )

        try:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    member = posixpath.normpath(entry.name)
                    if member in remote.members and entry.isreg():
                        tar.extract(entry.replace(name=member), scratch, filter="data")
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise broken(str(error)) from error
        for member, checksum in remote.members.items():
            if not (scratch / member).is_file():
                raise broken(f"{member} is missing")
            if _checksum(scratch / member, checksum) != checksum:
                raise broken(f"{member} has another checksum")
        for member in remote.members:
            (folder / member).parent.mkdir(parents=True, exist_ok=True)
            os.replace(scratch / member, folder / member)


def read_decompressed(path: Path, most_bytes: int = 1 << 30) -> bytes:
    """Return all bytes of a file, decompressed if it is a .gz. One that is longer than its format allows is refused."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise Problem(f"{path} has more than {most_bytes:,} bytes: delete it to have it downloaded again")
        return content
    except (OSError, EOFError, zlib.error) as error:
        raise Problem(
            f"{path} ({path.stat().st_size:,} bytes) cannot be read ({error}): delete it to have it downloaded again"
        ) from error


def check_size(path: Path, expected: int, found: int) -> None:
    """Refuse a file of another size than its format or header says: it is truncated or damaged."""
    if found != expected:
        raise Problem(
            f"{path} is not complete: expected {expected:,} bytes, found {found:,}; "
            "delete it to have it downloaded again"
        )
