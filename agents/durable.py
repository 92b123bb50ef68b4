"""Files that survive the death of the process and of the machine: when a call returns, they are on the disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes that ask for the same out of a folder. Leaves nothing behind, however the process ends.

    Raises:
        BlockingIOError: another one is in it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is writing {folder}; wait until it has ended, or choose another folder with --out"
            ) from None
        yield
    finally:
        os.close(handle)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, content: str | Iterable[bytes]) -> None:
    """Write a file under a temporary name first, so that it is complete, or what it was before.

    Raises:
        OSError: it cannot be written; `path` is what it was before.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([content.encode()] if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def append(path: Path, line: str) -> None:
    """Add a line, in place of a last one that a process left unfinished when it died.

    Raises:
        OSError: it cannot be written; what is there of it counts as unfinished.
    """
    new = not path.exists()
    with path.open("ab") as file:
        file.truncate(_complete(path))
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync(path.parent)


def _complete(path: Path) -> int:
    """Return the number of bytes up to the end of the last complete line of a file."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(end - 4096, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0
