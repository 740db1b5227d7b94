"""Atomic writes: after a crash a file has its old content or its new content, never a part of it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigbatch.errors import Problem

_ADVICE = "there, or choose another folder"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advise(error: BaseException) -> str:
    """Return what to do about an error of writing: a full disk needs other help than a missing permission."""
    if isinstance(error, OSError) and error.errno not in _NO_SPACE:
        return "allow writing"
    return "free disk space"


@contextmanager
def replace_file(target: Path | str, advice: str = _ADVICE) -> Iterator[Path]:
    """Yield a temporary path to write to; it is flushed to disk and renamed to the target if the block succeeds.

    Missing parent folders are created. If writing fails, the target keeps its content, and a Problem says to free disk
    space or to allow writing, and ends in `advice`.
    """
    final = Path(target)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(final)
    except OSError as error:
        raise Problem(f"{final} could not be written ({error.strerror}): {advise(error)} {advice}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def replace_folder(target: Path, *, per_process: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is flushed to disk and renamed to the target if the block succeeds.

    `per_process` names it by process, for targets that several processes may write at the same time.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp" if per_process else f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for path in (*temporary.iterdir(), temporary):
            _flush_to_disk(path)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        _flush_to_disk(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(target: Path | str, text: str, advice: str = _ADVICE) -> Path:
    """Write text as UTF-8 atomically and return the path."""
    with replace_file(target, advice) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(target)


def check_writable(out: Path) -> None:
    """Refuse an `--out` folder that cannot be created or written to, before hours of work."""
    nearest = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise Problem(f"--out {out}: {nearest} is a file, name a new or an existing folder")
    if not os.access(nearest, os.W_OK):
        raise Problem(f"--out {out}: {nearest} is not writable, name another folder")


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
