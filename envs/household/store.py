"""Rows of large JSONL files made quick to open: read once, then kept on disk with an index, each row on its own.

A store is one file: the index as a line of JSON, then the rows, each compressed. It is written under another name and
renamed, so that any number of processes may make it at once; a file that changed gets a store of its own.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

VERSION = 1  # of what a store holds


def cache_folder() -> Path:
    """Return where indexes are kept: `turngym/household` in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "turngym" / "household"


def cached(key: str, make: Callable[[], bytes]) -> Path | bytes:
    """Return the file in the cache that `make` filled for this key, or what it made where nothing can be written."""
    digest = hashlib.sha256(f"{VERSION} {key}".encode()).hexdigest()[:32]
    path = cache_folder() / f"{digest}.games"
    if path.is_file():
        return path
    data = make()
    written = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(written).replace(path)
    except OSError:  # a read-only home, a full disk: everything works, opening just takes its time again
        with contextlib.suppress(OSError):
            Path(written).unlink()
        return data
    return path


def opened(made: Path | bytes) -> IO[bytes]:
    """Open what `cached` returned."""
    return BytesIO(made) if isinstance(made, bytes) else made.open("rb")


def read_index(file: IO[bytes]) -> list[list[Any]]:
    """Return the index in the first line of a file of the cache."""
    try:
        index: list[list[Any]] = json.loads(file.readline())
    except ValueError:
        raise ValueError(f"the index {getattr(file, 'name', 'in memory')} is damaged; delete the file") from None
    return index


def file_key(path: Path) -> str:
    """Return a text that changes when the file does."""
    found = path.stat()
    return f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"


class Store:
    """The rows of one JSONL file (`.jsonl`, `.jsonl.gz`, `.jsonl.xz`).

    Args:
        path: The file.
        head: Makes the index entry of a row, given with the place where it stands; raises ValueError for a bad one.

    Raises:
        ValueError: a line is not JSON, the file not complete, or `head` refuses a row.
    """

    def __init__(self, path: Path, head: Callable[[Any, str], Sequence[Any]]) -> None:
        self.path = path
        self._at = cached(f"rows {file_key(path)}", lambda: _packed(path, head))
        with opened(self._at) as file:
            self.index = read_index(file)
            self._start = file.tell()

    def __getitem__(self, i: int) -> Any:
        """Return row `i`."""
        offset, size = self.index[i][-2:]
        with opened(self._at) as file:
            file.seek(self._start + offset)
            return json.loads(zlib.decompress(file.read(size)))


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a JSONL file, each with where it stands (`games.jsonl.xz:7`); blank lines are skipped."""
    number = 0
    try:
        with _lines(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{path.name}:{number}", json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}:{number} is not JSON in UTF-8: {error}") from None
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a complete {path.suffix} file: {error}") from None


def _lines(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")


def _packed(path: Path, head: Callable[[Any, str], Sequence[Any]]) -> bytes:
    index, packed, offset = [], [], 0
    for where, row in rows(path):
        blob = zlib.compress(json.dumps(row).encode(), 1)
        index.append([*head(row, where), offset, len(blob)])
        packed.append(blob)
        offset += len(blob)
    return json.dumps(index).encode() + b"\n" + b"".join(packed)
