"""A cache on disk for NumPy arrays that take long to compute.

`load_or_make_arrays` loads the arrays cached under a key, or makes and caches them. They are
memory-mapped, so all processes that open the same file share its memory. `join_texts` stores a list
of texts as arrays, and `Texts` reads it.

A file begins with its own sha256, so damage is noticed, and the arrays are made again. It is
written under a temporary name and renamed, so any number of processes may write the same file at
once.
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
Buffer: TypeAlias = bytes | memoryview

_DIGEST_LINE_BYTES = hashlib.sha256().digest_size * 2 + 1  # the digits of a sha256 and "\n"
_ALIGNMENT_BYTES = 64  # every array starts at a multiple, which suits any dtype
log = logging.getLogger(__name__)


def cache_folder(name: str = "search") -> Path:
    """Return the user's cache folder `turngym/NAME`, in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    user_cache = Path(base) if base else Path.home() / ".cache"
    return user_cache / "turngym" / name


def digest_values(values: Iterable[object]) -> str:
    """Return the sha256 of a sequence of JSON values, different for any two sequences."""
    # JSON escapes line breaks inside a value, so a line break can separate the values.
    lines = [json.dumps(value).encode() + b"\n" for value in values]
    return hashlib.sha256(b"".join(lines)).hexdigest()


def load_or_make_arrays(
    folder: Path | None, key: str, make: Callable[[], Arrays], earlier_keys: Sequence[str] = ()
) -> Arrays:
    """Load the arrays cached under `key`; if there are none, make and cache them.

    If the cache file is damaged, the arrays are made again. If they cannot be cached, they stay in
    memory. Both are logged as warnings.

    Args:
        folder: Folder of the cache file; None caches nothing.
        key: The file's name without its ending. It must differ if the arrays do, so it is usually a
            digest of all that they depend on.
        make: Computes the arrays.
        earlier_keys: The keys of the same arrays in versions 1, 2, … of their format. If there is a
            file of such a key, a warning says that it is not used; it is not removed.

    Returns:
        The arrays by name, memory-mapped and read-only unless they could not be cached.
    """
    if folder is None:
        return make()
    path = folder / f"{key}.arrays"
    try:
        return _read_arrays(path, key)
    except FileNotFoundError:
        _warn_of_earlier_formats(folder, earlier_keys)
    except (OSError, ValueError) as error:
        log.warning("the cached index %s cannot be used (%s); it is made anew", path, error)
    arrays = make()
    try:
        _write_arrays(path, key, arrays)
        # The mapped arrays are returned rather than those just made, to share their memory.
        return _read_arrays(path, key)
    except (OSError, ValueError) as error:
        log.warning(
            "the index cannot be kept in %s (%s); it stays in the memory of this process",
            path,
            error,
        )
        return arrays


def _warn_of_earlier_formats(folder: Path, earlier_keys: Sequence[str]) -> None:
    """Log a warning for each cache file of the same arrays in an earlier version of their format.

    Args:
        folder: Folder of the cache files.
        earlier_keys: The keys of these arrays in versions 1, 2, …; the current version is the next.
    """
    current_version = len(earlier_keys) + 1
    for version, key in enumerate(earlier_keys, start=1):
        path = folder / f"{key}.arrays"
        if path.exists():
            log.warning(
                "the cached index %s is of version %d, and this turngym needs version %d; "
                "it is made anew",
                path,
                version,
                current_version,
            )


def _write_arrays(path: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a cache file for `_read_arrays`.

    The file has three parts: a line with the sha256 of the other two, a line of JSON
    `[key, {name: [dtype, shape, offset]}]`, and the bytes of the arrays. An offset is the number of
    bytes between the end of the JSON line and the array.
    """
    array_layouts: dict[str, tuple[str, tuple[int, ...], int]] = {}
    array_buffers: list[Buffer] = []
    end_of_last_array = 0
    for name, array in arrays.items():
        padding = _count_padding(end_of_last_array)
        offset = end_of_last_array + padding
        array_layouts[name] = (array.dtype.str, array.shape, offset)
        array_buffers.append(bytes(padding))
        array_buffers.append(np.ascontiguousarray(array).reshape(-1).data)
        end_of_last_array = offset + array.nbytes
    json_header = json.dumps([key, array_layouts]).encode()
    # Spaces in front of the line break align the first array.
    header_end = _DIGEST_LINE_BYTES + len(json_header) + len(b"\n")
    header_line = json_header + b" " * _count_padding(header_end) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_with_digest(path, [header_line, *array_buffers])


def _count_padding(end: int) -> int:
    """Return how many bytes are between `end` and the next position where an array may start."""
    return -end % _ALIGNMENT_BYTES


def _write_with_digest(path: Path, buffers: Iterable[Buffer]) -> None:
    """Write a file of a line with the sha256 of `buffers`, and the buffers.

    The file gets its name only when it is complete, so nobody reads a part of it.
    """
    handle, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    temporary = Path(temporary_name)
    sha256 = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            # The digest is known only at the end, so its line is left out and written last.
            file.seek(_DIGEST_LINE_BYTES)
            for buffer in buffers:
                sha256.update(buffer)
                file.write(buffer)
            file.seek(0)
            file.write(f"{sha256.hexdigest()}\n".encode())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _read_arrays(path: Path, key: str) -> Arrays:
    """Map a cache file of `_write_arrays` into memory and return its arrays by name.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is damaged, or belongs to another key.
    """
    with path.open("rb") as file:
        mapped_file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = memoryview(mapped_file)
    sha256 = hashlib.sha256(view[_DIGEST_LINE_BYTES:]).hexdigest()
    if bytes(view[:_DIGEST_LINE_BYTES]) != f"{sha256}\n".encode():
        raise ValueError("its sha256 is not that of what was written")
    mapped_file.seek(_DIGEST_LINE_BYTES)
    written_key, array_layouts = json.loads(mapped_file.readline())
    if written_key != key:
        raise ValueError(f"it was written as {written_key}")
    arrays_start = mapped_file.tell()
    arrays: Arrays = {}
    for name, (dtype, shape, offset) in array_layouts.items():
        item_count = int(np.prod(shape))
        flat_array = np.frombuffer(view, dtype, item_count, arrays_start + offset)
        arrays[name] = flat_array.reshape(shape)
    return arrays


class Texts:
    """A list of byte strings, stored as one array of all bytes and one of each string's end.

    Args:
        data: The strings one after another.
        ends: For each string, the position in `data` behind its last byte.
    """

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        # Items of a memoryview are plain bytes and ints, which are faster to get than NumPy
        # scalars.
        self._data = data.data
        self._ends = ends.data

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> bytes:
        start = self._ends[i - 1] if i else 0
        return bytes(self._data[start : self._ends[i]])

    def find(self, text: bytes) -> int | None:
        """Return the index of a text in a sorted list by binary search; None if it is not there."""
        i = bisect_left(range(len(self)), text, key=self.__getitem__)
        return i if i < len(self) and self[i] == text else None


def join_texts(texts: Iterable[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the two arrays that `Texts` takes: all bytes, and where each text ends."""
    texts = list(texts)
    data = np.frombuffer(b"".join(texts), np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return data, ends
