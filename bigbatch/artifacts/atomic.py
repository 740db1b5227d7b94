"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bigbatch.errors import Problem


@contextmanager
def file(target: Path | str) -> Iterator[Path]:
    """A temporary path to write to; it takes the target's name, flushed to disk, when the block ends without an error.

    Folders on the way are made. Where it cannot be written a Problem says so, and what was there before stays.
    """
    final = Path(target)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(final)
    except OSError as error:
        raise Problem(f"{final} could not be written ({error.strerror}): choose another place or make room") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(target: Path | str, text: str) -> Path:
    """Text as UTF-8; returns the path."""
    with file(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(target)


def check_folder(out: Path) -> None:
    """Find out before hours of work whether `--out` can be made and written to."""
    nearest = next(place for place in (out.absolute(), *out.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise Problem(f"--out {out}: {nearest} is a file, name a folder, which may be new")
    if not os.access(nearest, os.W_OK):
        raise Problem(f"--out {out}: {nearest} cannot be written to, name another folder")
