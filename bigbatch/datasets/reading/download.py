"""Where the files of a dataset are: found on this machine, or downloaded from their authors, checked and unpacked.

Folders are looked through in this order: the one given, $BIGBATCH_DATA, ~/.cache/bigbatch/datasets. A set is taken
from the first folder that holds all of its files, never from two; what is missing is downloaded into the first.
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
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bigbatch.errors import Problem

_SECONDS_WITHOUT_AN_ANSWER = 30.0
_ATTEMPTS_WITHOUT_PROGRESS = 3
_BYTES_PER_READ = 1 << 18

# told the bytes that are there and, where known, how many there will be
Advance = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Remote:
    """A file on a server. Of an archive only the named members are taken, each with its own checksum or ""."""

    name: str
    checksum: str  # "md5:<hex>" or "sha256:<hex>"; "" where only the members' checksums are known
    size: int  # bytes, for the message about a file that is not whole
    folder: str = ""  # where the file belongs below the data folder; members keep their own paths
    members: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSet:
    """The files of one dataset: where they may lie below a data folder, and where they come from."""

    title: str
    layouts: tuple[tuple[str, ...], ...]  # each a complete set of files, which may also be there as .gz
    address: str  # the folder on the server, ending in /
    remotes: tuple[Remote, ...]


def locate_or_download(wanted: FileSet, data_dir: Path | None, *, address: str | None = None) -> list[Path]:
    """The files of a layout, in its order. Another address is a mirror with the same files."""
    folders = data_folders(data_dir)
    for folder in folders:
        if found := _find(wanted, folder):
            return found
    for remote in wanted.remotes:
        _obtain(wanted.title, remote, folders[0], address or wanted.address)
    if found := _find(wanted, folders[0]):
        return found
    raise Problem(f"{wanted.title} was downloaded into {folders[0]} but is not there any more: run the command again")


def data_folders(data_dir: Path | None) -> list[Path]:
    """Where datasets are looked for, first to last."""
    named = [data_dir, os.environ.get("BIGBATCH_DATA"), "~/.cache/bigbatch/datasets"]
    return [Path(folder).expanduser() for folder in named if folder]


def _find(wanted: FileSet, folder: Path) -> list[Path] | None:
    for layout in wanted.layouts:
        plain_or_gz = ((folder / name, folder / f"{name}.gz") for name in layout)
        found = [next((path for path in pair if path.is_file()), None) for pair in plain_or_gz]
        if all(found):
            return [path for path in found if path]
    return None


def _obtain(title: str, remote: Remote, folder: Path, address: str) -> None:
    """Download one file, or take the one that a person has put there; an archive is unpacked."""
    target = folder / remote.folder / remote.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_process_at_a_time(target):
            if all((folder / member).is_file() for member in remote.members or [target.relative_to(folder)]):
                return  # another process was faster
            if not target.is_file():
                _download(title, remote, target, address + remote.name)
                downloaded = True
            else:
                _refuse_if_different(target, remote)
                downloaded = False
            if remote.members:
                _unpack(target, remote, folder)
                if downloaded:
                    target.unlink()
    except OSError as error:
        raise Problem(
            f"{title} cannot be written to {target.parent} ({error.strerror or error}): "
            "make room there or choose another folder with $BIGBATCH_DATA"
        ) from error


@contextlib.contextmanager
def _one_process_at_a_time(target: Path) -> Iterator[None]:
    """The ranks of a run want the same file at the same moment."""
    try:
        import fcntl
    except ImportError:  # not on Windows, where runs have one process
        yield
        return
    with open(target.with_name(f".{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(title: str, remote: Remote, target: Path, url: str) -> None:
    """Into a .part file that a later attempt continues, and under the real name only once the checksum holds."""
    part = target.with_name(f"{target.name}.part")
    resumed = part.exists()
    _transfer(title, remote, part, url, target)
    if resumed and _checksum(part, remote.checksum) != remote.checksum:
        part.unlink()  # the beginning was of another file: once more from the start
        _transfer(title, remote, part, url, target)
    if _checksum(part, remote.checksum) != remote.checksum:
        found_bytes = part.stat().st_size
        part.unlink()
        raise Problem(
            f"{url} is not the published {remote.name}: expected {remote.size:,} bytes with {remote.checksum}, "
            f"got {found_bytes:,} bytes with another checksum; try again later, or put the file into {target.parent}"
        )
    os.replace(part, target)


def _transfer(title: str, remote: Remote, part: Path, url: str, target: Path) -> None:
    """All bytes of the address into `part`; a cut connection is taken up again where it was cut."""
    failures = 0
    with _progress(title) as advance:
        while failures < _ATTEMPTS_WITHOUT_PROGRESS:
            before = _size(part)
            reason = "the connection was cut"
            try:
                if _transfer_once(part, url, advance):
                    return
            except urllib.error.HTTPError as error:
                raise _cannot_download(title, remote, target, url, f"the server answered {error.code}") from error
            except urllib.error.URLError as error:
                raise _cannot_download(title, remote, target, url, str(error.reason)) from error
            except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
                reason = str(error)
            failures = 0 if _size(part) > before else failures + 1
    raise _cannot_download(title, remote, target, url, f"{reason} after {_size(part):,} bytes")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cannot_download(title: str, remote: Remote, target: Path, url: str, reason: str) -> Problem:
    return Problem(
        f"{title} is not on this machine and {url} cannot be downloaded ({reason}): "
        f"put {remote.name} into {target.parent}, or try again when there is a network"
    )


def _transfer_once(part: Path, url: str, advance: Advance) -> bool:
    """One connection's worth of bytes; False where it ended before the announced length."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_SECONDS_WITHOUT_AN_ANSWER)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return True  # the last attempt got everything but was stopped before it could say so
        part.unlink()
        return False
    with response:
        continued = re.match(rf"bytes {have}-", response.headers.get("Content-Range", "")) is not None
        if response.status != http.client.PARTIAL_CONTENT or not continued:
            have = 0  # the server sends the file from its start
        length = response.headers.get("Content-Length")
        expected = have + int(length) if length else None
        with open(part, "ab" if have else "wb") as file:
            while block := response.read(_BYTES_PER_READ):
                file.write(block)
                have += len(block)
                advance(have, expected)
    return expected is None or have == expected


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda have, expected: None
        return
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.DownloadColumn())
    with progress.Progress(*columns, progress.TransferSpeedColumn(), console=console) as bar:
        task = bar.add_task(f"downloading {title}", total=None)
        yield lambda have, expected: bar.update(task, completed=have, total=expected)


def _refuse_if_different(path: Path, remote: Remote) -> None:
    if _checksum(path, remote.checksum) != remote.checksum:
        raise Problem(
            f"{path} is not the published file: expected {remote.size:,} bytes with {remote.checksum}, "
            f"found {path.stat().st_size:,} bytes; delete it to have it downloaded again"
        )


def _checksum(path: Path, like: str) -> str:
    """The checksum of a file, of the kind of another one."""
    kind = like.partition(":")[0]
    if not kind:
        return ""
    with open(path, "rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def _unpack(archive: Path, remote: Remote, folder: Path) -> None:
    """The expected members and no others, all of them or none."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as name:
        scratch = Path(name)
        try:
            with tarfile.open(archive) as tar:
                for entry in tar:
                    member = posixpath.normpath(entry.name)
                    if member in remote.members and entry.isreg():
                        tar.extract(entry.replace(name=member), scratch, filter="data")
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _broken_archive(archive, remote, str(error)) from error
        for member, checksum in remote.members.items():
            if not (scratch / member).is_file():
                raise _broken_archive(archive, remote, f"{member} is missing")
            if _checksum(scratch / member, checksum) != checksum:
                raise _broken_archive(archive, remote, f"{member} has another checksum")
        for member in remote.members:
            (folder / member).parent.mkdir(parents=True, exist_ok=True)
            os.replace(scratch / member, folder / member)


def _broken_archive(archive: Path, remote: Remote, reason: str) -> Problem:
    return Problem(
        f"{archive} is not the published archive ({reason}): expected {remote.size:,} bytes, "
        f"found {archive.stat().st_size:,}; delete it to have it downloaded again"
    )


def read(path: Path) -> bytes:
    """All bytes of a file, uncompressed where it is a .gz."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise Problem(
            f"{path} ({path.stat().st_size:,} bytes) cannot be read ({error}): delete it to have it downloaded again"
        ) from error


def refuse_size(path: Path, expected: int, found: int) -> None:
    """A file of another size than its format or header says is cut or damaged."""
    if found != expected:
        raise Problem(
            f"{path} is not whole: expected {expected:,} bytes, found {found:,}; delete it to have it downloaded again"
        )
