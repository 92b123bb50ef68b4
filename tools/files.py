"""Files in folders that somebody else may have made: read within limits, written under names that nobody knows before.

The folder that a command names is the operator's and is followed wherever it leads: `root`, or where it is left out the
folder that holds the file. Below it no link is followed, neither to read nor to write, and nothing but plain files is
opened: a named pipe would wait for ever, and a device may do anything.

A file is written under a new name first, which is random and made for it alone, so that whoever made the folder cannot
have put something else there, and so that two processes never share one.
"""

import errno
import fcntl
import gzip
import lzma
import os
import re
import secrets
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedRandom, BufferedReader
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

MOST = 1 << 26  # bytes of a file that is read as a whole, unless more is asked for
MOST_LINE = 1 << 25  # bytes of a line of data
# Bytes that a packed file may hold, however small it is, and for each byte of its own. Household games, which say the
# same things again and again, are packed by 51; a file that is made to fill a memory, by a thousand with gzip and 7,000
# with xz.
LEAST, MOST_RATIO = 1 << 25, 200
MOST_TOML = 1 << 18  # bytes of a TOML file
MOST_DOTS = 8  # in one key of TOML: the reader of Python keeps every prefix of a key, so its memory grows quadratically
MOST_DEPTH = 64  # of brackets in TOML
_UNPACK: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_READ = os.O_RDONLY | os.O_NONBLOCK  # a pipe that was put there meanwhile does not block
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_TOML_TEXTS = re.compile(  # strings and comments of TOML, as `tomllib` finds them
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|'
    + r"'''.*?'''(?:'{0,2})|"
    + r'"(?:\\.|[^"\\\n])*"|'
    + r"'[^'\n]*'|#[^\n]*",
    re.DOTALL,
)
_TOML_KEYS = re.compile(r"[\w. \t-]+")


class LinkRefused(ValueError):
    """A link stands where a file or a folder has to be."""


class TooMuch(ValueError):
    """A file, or a line of it, is larger than any that is meant."""


def read_bytes(
    path: Path, most: int = MOST, root: Path | None = None, follow: bool = False
) -> bytes:
    """Return what a plain file holds.

    `follow` is for a path that the command itself names, or that is checked otherwise: then links are followed.

    Raises FileNotFoundError; ValueError where it is no plain file, has more than `most` bytes, or a link leads to it.
    """
    with open_plain(path, root, follow) as file:
        data = b"" if os.fstat(file.fileno()).st_size > most else file.read(most)
        if file.read(1):
            raise TooMuch(f"{path} is larger than {most >> 10} KiB")
    return data


def read_text(path: Path, most: int = MOST, root: Path | None = None) -> str:
    """Return the text (UTF-8) of a plain file. Raises as `read_bytes` does, and ValueError where it is no text."""
    try:
        return read_bytes(path, most, root).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from None


def open_plain(path: Path, root: Path | None = None, follow: bool = False) -> BufferedReader:
    """Open a plain file to read it. Raises as `read_bytes` does."""
    if follow:
        _check_plain(path.stat(), path)
        return os.fdopen(_checked(os.open(path, _READ), path), "rb")
    with _place(path, root) as (folder, name):
        _check_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        return os.fdopen(_checked(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder), path), "rb")


def lines_of(file: Any, most: int, path: Path) -> Iterator[bytes]:
    """Yield the lines of a binary file. Raises ValueError where one has more than `most` bytes."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise TooMuch(
                f"{path}, line {number}: it has more than {most >> 20} MiB; no line is that long"
            )
        yield line


def data_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file of data that a command or a journal names, unpacked where it ends in `.gz` or `.xz`.

    Raises TooMuch where a line is too long, or few bytes make very many; what `gzip` and `lzma` raise; OSError.
    """
    unpack = _UNPACK.get(path.suffix)
    with (
        open_plain(path, follow=True) as file,
        unpack(file, "rb") if unpack else nullcontext(file) as lines,
    ):
        size = os.fstat(file.fileno()).st_size
        left = most = max(LEAST, MOST_RATIO * size) if unpack else size + MOST_LINE
        for line in lines_of(lines, MOST_LINE, path):
            if (left := left - len(line)) < 0:
                what = f"{path} has {size >> 10} KiB and holds more than {most >> 20} MiB"
                raise TooMuch(f"{what}; if you trust it, unpack it and name the unpacked file")
            yield line


def is_plain(path: Path, root: Path | None = None) -> bool:
    """Return whether there is a plain file, and no link leads to it."""
    try:
        with _place(path, root) as (folder, name):
            return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except (OSError, ValueError):
        return False


def names_in(folder: Path, root: Path | None = None) -> list[str]:
    """Return the names in a folder, in order; none where it is missing. Raises LinkRefused, NotADirectoryError."""
    try:
        with _place(folder / "x", root or folder.parent) as (handle, _):
            return sorted(os.listdir(handle))  # noqa: PTH208
    except FileNotFoundError:
        return []


def make_folder(folder: Path, root: Path | None = None) -> None:
    """Make a folder below one that is there, unless it is there already. Raises LinkRefused, OSError."""
    with _place(folder, root) as (handle, name):
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=handle)
            os.fsync(handle)
        _open_folder(handle, name, folder, close=True)


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a file, or a link itself, unless it is gone."""
    with suppress(FileNotFoundError), _place(path, root) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, unless it is gone; of a link only the link."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)  # which follows no link


def write_file(
    path: Path, content: str | Iterable[bytes], root: Path | None = None, synced: bool = True
) -> None:
    """Write a file under a temporary name first: it is complete, or (OSError) what it was before.

    With `synced` it is on the disk then. What stands there before is replaced, also where it is a link.
    """
    with _place(path, root) as (folder, name):
        temporary = f".{name}.{secrets.token_hex(8)}.tmp"
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(temporary, new, 0o666, dir_fd=folder), "wb") as file:
                file.writelines([content.encode()] if isinstance(content, str) else content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
        if synced:
            os.fsync(folder)


def tidy(folder: Path, names: Iterable[str], root: Path | None = None) -> None:
    """Remove temporary files of `names` that a killed process left; nobody else may be writing files of these names."""
    known = {*names}
    for name in names_in(folder, root):
        if (left := _TEMPORARY.fullmatch(name)) and left[1] in known:
            remove(folder / name, root)


def written_name(name: str) -> str | None:
    """Return the name of the file that `write_file` writes under a temporary one; None where `name` is none."""
    found = _TEMPORARY.fullmatch(name)
    return found[1] if found else None


def open_to_append(path: Path, root: Path | None = None) -> BufferedRandom:
    """Open a plain file, new or there, to add to it and to read it.

    A file with a second name (a hard link) is replaced by a copy first, so that the other one stays as it is.

    Raises LinkRefused, ValueError where it is no plain file, OSError.
    """
    with _place(path, root) as (folder, name):
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _check_plain(found, path)
            if found.st_nlink > 1:
                with open_plain(path, root) as file:
                    write_file(path, iter(lambda: file.read(1 << 20), b""), root)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(_checked(os.open(name, flags, 0o666, dir_fd=folder), path), "rb+")


def append_line(
    path: Path, line: str | bytes, *, root: Path | None = None, synced: bool = True
) -> None:
    """Add a line, in place of a last one that a process left unfinished when it died.

    With `synced` it is on the disk then, else soon: the death of the process does not take it away.

    Raises OSError where it cannot be written; what is there of it counts as unfinished. Else as `open_to_append`.
    """
    with open_to_append(path, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size:  # nothing cannot be mapped
            with mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
                whole = lines.rfind(b"\n") + 1
            file.truncate(whole)
        file.write((line.encode() if isinstance(line, str) else line) + b"\n")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if not size:
        with _place(path, root) as (folder, _):
            os.fsync(folder)


@contextmanager
def locked(folder: Path, root: Path | None = None) -> Iterator[None]:
    """Keep other processes out of a folder, which is below `root` where that is given; nothing is left behind.

    Raises BlockingIOError where one is in it.
    """
    if root is None:
        handle = os.open(folder, _FOLDER)
    else:
        with _place(folder, root) as (above, name):
            handle = _open_folder(above, name, folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fix = "wait until it has ended, or choose another folder with --out"
            raise BlockingIOError(f"another process is writing {folder}; {fix}") from None
        yield
    finally:
        os.close(handle)


def writable(folder: Path) -> None:
    """Make `folder` and make sure that files can be written there; raises PermissionError where they cannot."""
    probe = folder / f".writable.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        probe.unlink()
    except OSError as error:
        what = f"cannot write to {folder} ({error.strerror})"
        raise PermissionError(f"{what}; choose another folder with --out") from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_inside(folder: Path) -> None:
    """Refuse a folder with a link that leads out of it, a pipe or a device; one that is missing holds nothing.

    For folders in which a command goes on, and which other libraries read and write, too. Raises ValueError.
    """
    home = folder.resolve()
    for place, folders, files in os.walk(folder):  # which follows no link
        for path in (Path(place, name) for name in (*folders, *files)):
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind) and not path.resolve().is_relative_to(home):
                raise LinkRefused(
                    f"{path} is a link that leads out of {folder}; remove it, or copy there what it names"
                )
            if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
                raise ValueError(f"{path} is no plain file; remove it")


def read_toml(path: Path, root: Path | None = None, follow: bool = False) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises ValueError where it is none or too large, and as `read_bytes` does."""
    data = read_bytes(path, MOST_TOML, root, follow)
    try:
        return parse_toml(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text in TOML. Raises ValueError where it is none, or of a form that takes much memory."""
    if len(text) > MOST_TOML:
        raise ValueError(f"it has {len(text)} characters; at most {MOST_TOML} are read")
    plain = _TOML_TEXTS.sub(lambda found: "" if found[0].startswith("#") else "s", text)
    if (
        dots := max((run[0].count(".") for run in _TOML_KEYS.finditer(plain)), default=0)
    ) > MOST_DOTS:
        raise ValueError(f"a key has {dots} dots; at most {MOST_DOTS} are read")
    depth = 0
    for bracket in re.finditer(r"[][{}]", plain):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise ValueError(f"its brackets are nested more than {MOST_DEPTH} deep")
    return tomllib.loads(text)


@contextmanager
def _place(path: Path, root: Path | None) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that holds a file, reached from `root` without a link, and the file's name."""
    top = path.parent if root is None else root
    *inner, name = path.relative_to(top).parts
    if ".." in (*inner, name):
        raise ValueError(f"{path} leads out of {top}; name a file within")
    handle = os.open(top, _FOLDER)
    try:
        for part in inner:
            above, handle = handle, -1
            try:
                handle = _open_folder(above, part, path)
            finally:
                os.close(above)
        yield handle, name
    except OSError as error:
        if error.filename == name:  # the whole path says more
            error.filename = str(path)
        if error.errno == errno.ELOOP:
            raise _refused(path) from None
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _open_folder(above: int, name: str, path: Path, close: bool = False) -> int:
    if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        raise _refused(path)
    handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    if close:
        os.close(handle)
    return handle


def _refused(path: Path) -> LinkRefused:
    return LinkRefused(
        f"{path} is a link, or behind one, and within a folder none is followed; put the file itself there"
    )


def _check_plain(found: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path} is no plain file")


def _checked(handle: int, path: Path) -> int:
    """Return the descriptor of a plain file; one of anything else is closed."""
    try:
        _check_plain(os.fstat(handle), path)
        return handle
    except BaseException:
        os.close(handle)
        raise
