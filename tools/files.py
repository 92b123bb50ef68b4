"""Files in folders that somebody else may have made: no links, limits, random temporary names.

The folder that a command names is the operator's and is followed wherever it leads: `root`, or
without it the folder that contains the file. Below it no link is followed, neither to read nor to
write, and only plain files are opened: a named pipe would block for ever, and a device may do
anything.

A file is first written under a temporary name that is random and new, so that whoever made the
folder cannot have put something else there, and two processes never share one.

Reading comes first, then writing, then locks and checks of folders, then TOML; the opening of paths
without links, on which all of it rests, is at the end.
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
# A packed file may unpack to `MIN_UNPACKED_BYTES`, or to `MAX_UNPACKING_RATIO` times its size if
# that is more. Household games, which repeat themselves, shrink by a factor of 51; a file that is
# made to fill the memory by 1,000 with gzip and 7,000 with xz.
MIN_UNPACKED_BYTES = 1 << 25
MAX_UNPACKING_RATIO = 200
MOST_TOML = 1 << 18  # bytes of a TOML file
MOST_DOTS = (
    8  # in a key of TOML: `tomllib` keeps every prefix of a key, so memory grows quadratically
)
MOST_DEPTH = 64  # of brackets in TOML

_UNPACK: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
# Flags of `os.open`. A pipe that takes the place of a file after the check does not block.
_READ = os.O_RDONLY | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
_TEMPORARY = re.compile(
    r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL
)  # `.page.html.0123456789abcdef.tmp`
_TOML_TEXTS = re.compile(
    # Strings and comments of TOML, as `tomllib` finds them.
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # over several lines; it may end with two more quotes
    r"|'''.*?'''(?:'{0,2})"  # the same without escapes
    r'|"(?:\\.|[^"\\\n])*"'  # on one line
    r"|'[^'\n]*'"  # on one line, without escapes
    r"|#[^\n]*",  # a comment
    re.DOTALL,
)
_TOML_KEYS = re.compile(r"[\w. \t-]+")  # runs of characters that may be a key: `a . b-c.d`


class LinkRefused(ValueError):
    """A link stands where a file or a folder has to be."""


class TooMuch(ValueError):
    """A file, or a line of it, is larger than any that is meant."""


# --- reading


def read_bytes(
    path: Path, most: int = MOST, root: Path | None = None, follow: bool = False
) -> bytes:
    """Read a plain file as a whole.

    Args:
        path: The file.
        most: The largest size in bytes that is read.
        root: The folder below which no link is followed; by default the file's own folder.
        follow: Follow links everywhere. This is for a path that the command itself names, or that
            is checked otherwise.

    Raises:
        FileNotFoundError: There is no such file.
        TooMuch: It has more than `most` bytes.
        LinkRefused: It is a link, or a link below `root` leads to it.
        ValueError: It is no plain file.
    """
    with open_plain(path, root, follow) as file:
        data = b""
        if os.fstat(file.fileno()).st_size <= most:
            data = file.read(most)
        # The size alone proves nothing: a file may grow, and those in /proc have none.
        if file.read(1):
            raise TooMuch(f"{path} is larger than {most >> 10} KiB")
    return data


def read_text(path: Path, most: int = MOST, root: Path | None = None) -> str:
    """Read a plain file in UTF-8 as a whole.

    The arguments and errors are those of `read_bytes`; ValueError also if it is not UTF-8.
    """
    try:
        return read_bytes(path, most, root).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from None


def open_plain(path: Path, root: Path | None = None, follow: bool = False) -> BufferedReader:
    """Open a plain file for reading; the arguments and errors are those of `read_bytes`."""
    # The first check avoids opening a device, which may have effects; the one behind it is safe
    # from somebody who replaces the file in between.
    if follow:
        _check_plain(path.stat(), path)
        handle = os.open(path, _READ)
    else:
        with _open_parent(path, root) as (folder, name):
            _check_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
            handle = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder)
    _close_unless_plain(handle, path)
    return os.fdopen(handle, "rb")


def read_lines(file: Any, most: int, path: Path) -> Iterator[bytes]:
    """Yield the lines of a binary file.

    Args:
        file: The open file.
        most: The largest number of bytes of a line.
        path: The file's path, for the message.

    Raises:
        TooMuch: A line has more than `most` bytes.
    """
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise TooMuch(
                f"{path}, line {number}: it has more than {most >> 20} MiB; no line is that long"
            )
        yield line


def read_data_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a data file that a command or a journal names.

    Links are followed. A file whose name ends in `.gz` or `.xz` is unpacked.

    Raises:
        TooMuch: A line is too long, or a small file unpacks to very much.
        OSError: The file cannot be read, or is damaged; `gzip` and `lzma` have further errors.
    """
    unpack = _UNPACK.get(path.suffix)
    with open_plain(path, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        if unpack is None:
            stream = nullcontext(file)
            most = size + MOST_LINE  # it may grow while it is read
        else:
            stream = unpack(file, "rb")
            most = max(MIN_UNPACKED_BYTES, MAX_UNPACKING_RATIO * size)
        total = 0
        with stream as lines:
            for line in read_lines(lines, MOST_LINE, path):
                total += len(line)
                if total > most:
                    raise TooMuch(
                        f"{path} has {size >> 10} KiB and holds more than {most >> 20} MiB; "
                        "if you trust it, unpack it and name the unpacked file"
                    )
                yield line


def is_plain(path: Path, root: Path | None = None) -> bool:
    """Return whether there is a plain file, to which no link below `root` leads."""
    try:
        with _open_parent(path, root) as (folder, name):
            return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except (OSError, ValueError):
        return False


def list_names(folder: Path, root: Path | None = None) -> list[str]:
    """Return the sorted names in a folder; none if it is missing.

    Raises:
        LinkRefused: The folder is a link, or a link below `root` leads to it.
        NotADirectoryError: It is no folder.
    """
    any_name = folder / "x"  # whose parent is opened
    try:
        with _open_parent(any_name, root or folder.parent) as (handle, _):
            return sorted(os.listdir(handle))  # noqa: PTH208
    except FileNotFoundError:
        return []


# --- writing


def make_folder(folder: Path, root: Path | None = None) -> None:
    """Make a folder in one that exists, unless it is there already.

    Raises:
        LinkRefused: The folder is a link, or a link below `root` leads to it.
        OSError: It cannot be made, or something else has its name.
    """
    with _open_parent(folder, root) as (parent, name):
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
            os.fsync(parent)
        os.close(_open_folder(parent, name, folder))  # raises if it is a link or no folder


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a file, or a link itself, unless it is gone."""
    with suppress(FileNotFoundError), _open_parent(path, root) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, unless it is gone; of a link only the link."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)  # follows no link


def write_file(
    path: Path, content: str | Iterable[bytes], root: Path | None = None, synced: bool = True
) -> None:
    """Write a file as a whole, or leave what was there before.

    It is written under a temporary name and then renamed. A link in its place is replaced.

    Args:
        path: The file.
        content: Its text, or the pieces of its bytes.
        root: The folder below which no link is followed; by default the file's own folder.
        synced: Wait until the file is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    with _open_parent(path, root) as (folder, name):
        temporary_name = f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            with os.fdopen(os.open(temporary_name, _NEW, 0o666, dir_fd=folder), "wb") as file:
                if isinstance(content, str):
                    file.write(content.encode())
                else:
                    file.writelines(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary_name, dir_fd=folder)
            raise
        if synced:
            os.fsync(folder)  # the new name


def remove_temporary_files(folder: Path, names: Iterable[str], root: Path | None = None) -> None:
    """Remove the temporary files that a killed process left.

    Args:
        folder: Where they are.
        names: The names of the files that were being written; nobody else may be writing them now.
        root: The folder below which no link is followed; by default the parent of `folder`.
    """
    own_names = set(names)
    for name in list_names(folder, root):
        if name_behind_temporary(name) in own_names:
            remove(folder / name, root)


def name_behind_temporary(name: str) -> str | None:
    """Return the name of the file behind a temporary name of `write_file`; None for other names.

    `.page.html.0123456789abcdef.tmp` -> `page.html`
    """
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def open_to_append(path: Path, root: Path | None = None) -> BufferedRandom:
    """Open a plain file to read it and to append to it; it is made if there is none.

    A file with a second name (a hard link) is first replaced by a copy, so that the other name
    keeps the content that it has.

    Raises:
        LinkRefused: It is a link, or a link below `root` leads to it.
        ValueError: It is no plain file.
        OSError: It cannot be opened.
    """
    with _open_parent(path, root) as (folder, name):
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _check_plain(status, path)
            if status.st_nlink > 1:
                with open_plain(path, root) as file:
                    chunks = iter(lambda: file.read(1 << 20), b"")
                    write_file(path, chunks, root)
        handle = os.open(name, _APPEND, 0o666, dir_fd=folder)
        _close_unless_plain(handle, path)
        return os.fdopen(handle, "rb+")


def append_line(
    path: Path, line: str | bytes, *, root: Path | None = None, synced: bool = True
) -> None:
    """Append a line to a file; it replaces a last line that a process left unfinished when it died.

    Args:
        path: The file; it is made if there is none.
        line: The line, without its end.
        root: The folder below which no link is followed; by default the file's own folder.
        synced: Wait until the line is on the disk. Otherwise it soon is, even if this process dies.

    Raises:
        OSError: It cannot be written; what is there of it counts as unfinished.
        ValueError: See `open_to_append`.
    """
    with open_to_append(path, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size > 0:  # an empty file cannot be mapped
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                end_of_last_line = content.rfind(b"\n") + 1
            file.truncate(end_of_last_line)
        data = line.encode() if isinstance(line, str) else line
        file.write(data + b"\n")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if size == 0:  # the name may be new as well
        with _open_parent(path, root) as (folder, _):
            os.fsync(folder)


# --- locks and checks of folders


@contextmanager
def lock_folder(folder: Path, root: Path | None = None) -> Iterator[None]:
    """Keep other processes that use `lock_folder` out of a folder; the lock leaves no file behind.

    Args:
        folder: The folder.
        root: The folder below which no link is followed; if it is None, `folder` may itself be a
            link.

    Raises:
        BlockingIOError: Another process has locked it.
    """
    if root is None:
        handle = os.open(folder, _FOLDER)
    else:
        with _open_parent(folder, root) as (parent, name):
            handle = _open_folder(parent, name, folder)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is writing {folder}; "
                "wait until it has ended, or choose another folder with --out"
            ) from None
        yield
    finally:
        os.close(handle)


def make_writable_folder(folder: Path) -> None:
    """Make a folder, and check by a trial that files can be written there.

    Raises:
        PermissionError: They cannot.
    """
    probe = folder / f".writable.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(probe, _NEW, 0o666))
        probe.unlink()
    except OSError as error:
        raise PermissionError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with --out"
        ) from error


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refuse_links_out_of(folder: Path) -> None:
    """Refuse a folder that contains a link out of it, a pipe or a device; it may be missing.

    This is for folders in which a command continues its work, and which other libraries, too, read
    and write.

    Raises:
        LinkRefused: A link leads out of the folder.
        ValueError: There is a pipe or a device.
    """
    resolved_folder = folder.resolve()
    for parent, folder_names, file_names in os.walk(folder):  # follows no link
        for name in (*folder_names, *file_names):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode) and not path.resolve().is_relative_to(resolved_folder):
                raise LinkRefused(
                    f"{path} is a link that leads out of {folder}; "
                    "remove it, or copy there what it names"
                )
            if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise ValueError(f"{path} is no plain file; remove it")


# --- TOML


def read_toml(path: Path, root: Path | None = None, follow: bool = False) -> dict[str, Any]:
    """Return the tables of a TOML file.

    The arguments and errors are those of `read_bytes`; ValueError also if it is not TOML, or takes
    too much memory.
    """
    data = read_bytes(path, MOST_TOML, root, follow)
    try:
        return parse_toml(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text in TOML.

    Raises:
        ValueError: It is not TOML, or has a form for which the parser would take very much memory.
    """
    if len(text) > MOST_TOML:
        raise ValueError(f"it has {len(text)} characters; at most {MOST_TOML} are read")
    # Dots and brackets are counted without those in comments, which are left out, and in strings,
    # each of which becomes an `s`, since a string may be a part of a key: `a."b.c".d` -> `a.s.d`.
    bare_text = _TOML_TEXTS.sub(lambda match: "" if match[0].startswith("#") else "s", text)
    dots = max((key[0].count(".") for key in _TOML_KEYS.finditer(bare_text)), default=0)
    if dots > MOST_DOTS:
        raise ValueError(f"a key has {dots} dots; at most {MOST_DOTS} are read")
    depth = 0
    for bracket in re.finditer(r"[][{}]", bare_text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > MOST_DEPTH:
            raise ValueError(f"its brackets are nested more than {MOST_DEPTH} deep")
    return tomllib.loads(text)


# --- paths without links


@contextmanager
def _open_parent(path: Path, root: Path | None) -> Iterator[tuple[int, str]]:
    """Open the folder that contains a file, following no link below `root`.

    Each folder on the way is opened relative to the one above it, so that nobody can exchange a
    part of the path between its check and its use.

    Args:
        path: The file, or the folder whose parent is wanted; it need not exist.
        root: A folder above it, which may itself be a link; None for the parent.

    Yields:
        The parent's descriptor, which is closed at the end of the block, and the file's name in it.

    Raises:
        LinkRefused: A part of the path below `root` is a link; or the block opened a link.
        ValueError: The path has a `..` below `root`, or is not below it.
        OSError: A folder is missing or cannot be opened.
    """
    top = path.parent if root is None else root
    *folder_names, name = path.relative_to(top).parts
    if ".." in (*folder_names, name):
        raise ValueError(f"{path} leads out of {top}; name a file within")
    handle = os.open(top, _FOLDER)
    try:
        for folder_name in folder_names:
            handle_above = handle
            handle = -1  # so that the one above is not closed twice if this folder cannot be opened
            try:
                handle = _open_folder(handle_above, folder_name, path)
            finally:
                os.close(handle_above)
        yield handle, name
    except OSError as error:
        if error.filename == name:  # the whole path says more
            error.filename = str(path)
        if error.errno == errno.ELOOP:  # a link where O_NOFOLLOW was set
            raise _link_refused(path) from None
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _open_folder(parent: int, name: str, path: Path) -> int:
    """Open a folder by its name in one that is open, and return its descriptor.

    Args:
        parent: The descriptor of the open folder.
        name: The name in it.
        path: The whole path, for the message.

    Raises:
        LinkRefused: The name is a link.
        OSError: It is no folder or cannot be opened.
    """
    if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        raise _link_refused(path)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)


def _link_refused(path: Path) -> LinkRefused:
    return LinkRefused(
        f"{path} is a link, or behind one, and within a folder none is followed; "
        "put the file itself there"
    )


def _check_plain(status: os.stat_result, path: Path) -> None:
    """Raise LinkRefused for a link, and ValueError for anything else that is no plain file."""
    if stat.S_ISLNK(status.st_mode):
        raise _link_refused(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is no plain file")


def _close_unless_plain(handle: int, path: Path) -> None:
    """Close a descriptor and raise ValueError if it is not that of a plain file."""
    try:
        _check_plain(os.fstat(handle), path)
    except BaseException:
        os.close(handle)
        raise
