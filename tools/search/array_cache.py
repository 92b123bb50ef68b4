"""Arrays that took long to make: kept on disk, memory-mapped, and so shared by all processes that open them.

One file holds them: its sha256 in the first line, what it holds as a line of JSON, then the arrays. It is renamed when
written, so any number of processes may write it at once. One whose sha256 is wrong is made anew.
"""

import contextlib
import hashlib
import json
import logging
import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = dict[str, NDArray[Any]]

_DIGEST = hashlib.sha256().digest_size * 2 + 1  # bytes of the first line
_ALIGN = 64  # so that no array begins amid a word of the processor
log = logging.getLogger(__name__)


def cache_folder(of: str = "search") -> Path:
    """Return where indexes are kept: `turngym/search` in `$XDG_CACHE_HOME` or `~/.cache`; likewise `of` others."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "turngym" / of


def digest(parts: Iterable[object]) -> str:
    """Return a sha256 that tells any two sequences of JSON values apart."""
    return hashlib.sha256(b"".join(json.dumps(part).encode() + b"\n" for part in parts)).hexdigest()


def kept(
    folder: Path | None, key: str, make: Callable[[], Arrays], earlier: Sequence[str] = ()
) -> Arrays:
    """Return the arrays of `make`, kept in a file under `key`; in memory where it cannot be written, with a log.

    `earlier` are the keys of version 1, 2, … of the same arrays. A file of these is left, and a log says that it is of
    no use any more.
    """
    if folder is None:
        return make()
    path = folder / f"{key}.arrays"
    try:
        return _read(path, key)
    except FileNotFoundError:
        for number, old in enumerate(earlier, start=1):
            if (stale := folder / f"{old}.arrays").exists():
                now = f"this turngym needs version {len(earlier) + 1}"
                log.warning(
                    "the cached index %s is of version %d, and %s; it is made anew",
                    stale,
                    number,
                    now,
                )
    except (OSError, ValueError) as error:
        log.warning("the cached index %s cannot be used (%s); it is made anew", path, error)
    arrays = make()
    try:
        _write(path, key, arrays)
        return _read(path, key)
    except (OSError, ValueError) as error:
        log.warning(
            "the index cannot be kept in %s (%s); it stays in the memory of this process",
            path,
            error,
        )
        return arrays


def _write(path: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    places, parts, end = {}, list[bytes | memoryview](), 0
    for name, array in arrays.items():
        start = -(-end // _ALIGN) * _ALIGN
        places[name] = (array.dtype.str, array.shape, start)
        parts += [bytes(start - end), np.ascontiguousarray(array).reshape(-1).data]
        end = start + array.nbytes
    made = hashlib.sha256()
    head = json.dumps([key, places]).encode()
    head += b" " * (-(len(head) + 1 + _DIGEST) % _ALIGN) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, written = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.seek(_DIGEST)
            for part in (head, *parts):
                made.update(part)
                file.write(part)
            file.seek(0)
            file.write(f"{made.hexdigest()}\n".encode())
        Path(written).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(written).unlink()
        raise


def _read(path: Path, key: str) -> Arrays:
    """Map a file into memory; ValueError where it is not what was written."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(data)
    if bytes(view[:_DIGEST]) != f"{hashlib.sha256(view[_DIGEST:]).hexdigest()}\n".encode():
        raise ValueError("its sha256 is not that of what was written")
    data.seek(_DIGEST)
    (written, places), start = json.loads(data.readline()), data.tell()
    if written != key:
        raise ValueError(f"it was written as {written}")
    return {
        name: np.frombuffer(view, dtype, int(np.prod(shape)), start + offset).reshape(shape)
        for name, (dtype, shape, offset) in places.items()
    }


class Texts:
    """A list of byte strings joined in one array, with where each ends in another."""

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._data, self._ends = data.data, ends.data  # whose items are plain bytes and ints

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> bytes:
        return bytes(self._data[self._ends[i - 1] if i else 0 : self._ends[i]])

    def find(self, text: bytes) -> int | None:
        """Return where a text stands in a sorted list; None where it is not in it."""
        i = bisect_left(range(len(self)), text, key=self.__getitem__)
        return i if i < len(self) and self[i] == text else None


def joined(texts: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return what `Texts` takes: the bytes, and where each text ends."""
    texts = list(texts)
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum(
        [len(text) for text in texts], dtype=np.int64
    )
