"""A program that an agent could write: it looks for a text in all that its own process can see.

The text comes in two parts that stand side by side nowhere, so that the program does not find itself. This file is run
as a whole in the Python tool; it imports nothing of the package.
"""

import contextlib
import gc
import os
import re
import resource
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PIECE = 2**20
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
_MOST = 1000  # changed files of a folder: others write there too, and a call has a deadline


def search(head: str, tail: str, since: float) -> list[str]:
    """Return where `head` is directly followed by `tail`; of temporary files, those changed `since` (Unix time)."""
    found = (place for place, data in _places(since) if _holds(data, head.encode(), tail.encode()))
    return list(dict.fromkeys(found))


def _holds(data: bytes, head: bytes, tail: bytes) -> bool:
    return re.search(re.escape(head) + b"(?=" + re.escape(tail) + b")", data) is not None


def _places(since: float) -> Iterator[tuple[str, bytes]]:
    yield "environment", repr(os.environ).encode("utf-8", "replace") + _read("/proc/self/environ")
    yield (
        "arguments",
        repr((sys.argv, sys.orig_argv)).encode("utf-8", "replace") + _read("/proc/self/cmdline"),
    )
    yield from (("working folder", data) for data in _files(Path.cwd(), 0.0))
    for folder in {tempfile.gettempdir(), str(Path.cwd().parent), *_SHARED}:
        yield from (("temporary files", data) for data in _files(Path(folder), since))
    yield from (("open files", data) for data in _open_files())
    yield from (("objects", data) for data in _objects())


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_PIECE)
    except OSError:
        return b""


def _files(folder: Path, since: float) -> Iterator[bytes]:
    """Every name below `folder` and the beginning of every file; what did not change after `since` is only named."""
    folders, left = [folder], _MOST
    while folders:
        for path in _listed(folders.pop()):
            yield path.name.encode("utf-8", "replace")
            try:
                known = path.lstat()
            except OSError:
                continue
            if known.st_mtime < since or (left := left - 1) <= 0:
                continue
            if stat.S_ISDIR(known.st_mode):
                folders.append(path)
            elif stat.S_ISREG(known.st_mode):
                yield _read(str(path))


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _open_files() -> Iterator[bytes]:
    for path in _listed(Path("/proc/self/fd")):
        with contextlib.suppress(OSError):
            yield str(path.readlink()).encode("utf-8", "replace")
    for number in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        with contextlib.suppress(OSError):
            if stat.S_ISREG((status := os.fstat(number)).st_mode):
                yield os.pread(number, min(status.st_size, _PIECE), 0)


def _objects() -> Iterator[bytes]:
    """Every text that an object holds, also in containers of plain values, which the collector does not list."""
    for holder in gc.get_objects():
        holders = [holder]
        while holders:
            for item in gc.get_referents(holders.pop()):
                if isinstance(item, str):
                    yield item.encode("utf-8", "replace")
                elif isinstance(item, bytes | bytearray):
                    yield bytes(item)
                elif isinstance(item, dict | tuple) and not gc.is_tracked(item):
                    holders.append(item)
