"""Files in folders that somebody else may have made: no links, limits, random temporary names.

The operator chooses the folder that a command names (`root`, or by default the folder that contains
the file), so it may be a link. Below it no link is followed, neither to read nor to write, and only
plain files are opened: a named pipe would block for ever, and a device may do anything.

A file is first written under a temporary name that is random and new, so that whoever made the
folder cannot have put something else there, and two processes never share one.

Reading comes first, then writing, then locks and checks of folders, then TOML. The functions that
open paths without following links, which all others use, are at the end.
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

MAX_FILE_BYTES = 1 << 26  # of a file that is read as a whole, unless the caller asks for more
MAX_LINE_BYTES = 1 << 25  # of a line of a data file
# A compressed file may unpack to `MIN_UNPACKED_BYTES`, or to `MAX_UNPACKING_RATIO` times its size
# if that is more. Household games, which repeat themselves, shrink by a factor of 51; a file that
# is made to fill the memory shrinks by 1,000 with gzip and by 7,000 with xz.
MIN_UNPACKED_BYTES = 1 << 25
MAX_UNPACKING_RATIO = 200
MAX_TOML_BYTES = 1 << 18
# `tomllib` stores every prefix of a key, so memory grows quadratically with the dots in it.
MAX_TOML_KEY_DOTS = 8
MAX_TOML_DEPTH = 64  # of nested brackets

_DECOMPRESSORS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
# Flags of `os.open`. A pipe that takes the place of a file after the check does not block.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
# `.page.html.0123456789abcdef.tmp`
_TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_TOML_STRINGS_AND_COMMENTS = re.compile(
    # Strings and comments of TOML, as `tomllib` finds them.
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # over several lines; it may end with two more quotes
    r"|'''.*?'''(?:'{0,2})"  # the same without escapes
    r'|"(?:\\.|[^"\\\n])*"'  # on one line
    r"|'[^'\n]*'"  # on one line, without escapes
    r"|#[^\n]*",  # a comment
    re.DOTALL,
)
_TOML_KEY_CANDIDATES = re.compile(
    r"[\w. \t-]+"
)  # runs of characters that may be a key: `a . b-c.d`


class LinkRefused(ValueError):
    """There is a link in place of a file or folder."""


class TooMuch(ValueError):
    """A file, or a line of it, is larger than allowed."""


# --- reading


def read_bytes(
    path: Path, max_bytes: int = MAX_FILE_BYTES, root: Path | None = None, follow: bool = False
) -> bytes:
    """Read a plain file as a whole.

    Args:
        path: The file.
        max_bytes: The largest size that is read.
        root: The folder below which no link is followed; by default the file's own folder.
        follow: Follow all links. This is for a path that the command itself names, or that the
            caller has checked.

    Raises:
        FileNotFoundError: There is no such file.
        TooMuch: It has more than `max_bytes`.
        LinkRefused: It is a link, or a link below `root` leads to it.
        ValueError: It is no plain file.
    """
    with open_plain(path, root, follow) as file:
        data = b""
        if os.fstat(file.fileno()).st_size <= max_bytes:
            data = file.read(max_bytes)
        # Whether more follows is tested by reading, since the size is not reliable: a file may grow
        # meanwhile, and files in /proc report a size of 0.
        if file.read(1):
            raise TooMuch(f"{path} is larger than {max_bytes >> 10} KiB")
    return data


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES, root: Path | None = None) -> str:
    """Read a plain file in UTF-8 as a whole.

    The arguments and errors are those of `read_bytes`; ValueError also if it is not UTF-8.
    """
    try:
        return read_bytes(path, max_bytes, root).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8: {error}") from None


def open_plain(path: Path, root: Path | None = None, follow: bool = False) -> BufferedReader:
    """Open a plain file for reading; the arguments and errors are those of `read_bytes`."""
    # The file is checked before it is opened, because opening a device may have effects, and again
    # afterwards, because somebody may have replaced it in between.
    if follow:
        _check_plain(path.stat(), path)
        fd = os.open(path, _READ_FLAGS)
    else:
        with _open_parent(path, root) as (folder_fd, name):
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            _check_plain(status, path)
            fd = os.open(name, _READ_FLAGS | os.O_NOFOLLOW, dir_fd=folder_fd)
    _close_unless_plain(fd, path)
    return os.fdopen(fd, "rb")


def read_lines(file: Any, max_line_bytes: int, path: Path) -> Iterator[bytes]:
    """Yield the lines of a binary file, each with its line feed.

    Args:
        file: The open file.
        max_line_bytes: The largest length of a line.
        path: The file's path, for the message.

    Raises:
        TooMuch: A line has more than `max_line_bytes`.
    """
    line_number = 0
    # One byte more than allowed is read, which shows that a line is too long.
    while line := file.readline(max_line_bytes + 1):
        line_number += 1
        if len(line) > max_line_bytes:
            raise TooMuch(
                f"{path}, line {line_number}: it has more than {max_line_bytes >> 20} MiB; "
                "no line is that long"
            )
        yield line


def read_data_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a data file that a command or a journal names.

    Links are followed. A file whose name ends in `.gz` or `.xz` is decompressed.

    Raises:
        TooMuch: A line is too long, or a small file decompresses to very much.
        OSError: The file cannot be read, or is damaged; `gzip` and `lzma` have further errors.
    """
    open_compressed = _DECOMPRESSORS.get(path.suffix)
    with open_plain(path, follow=True) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        if open_compressed is None:
            content = nullcontext(file)
            max_content_bytes = file_bytes + MAX_LINE_BYTES  # it may grow while it is read
        else:
            content = open_compressed(file, "rb")
            max_content_bytes = max(MIN_UNPACKED_BYTES, MAX_UNPACKING_RATIO * file_bytes)
        content_bytes = 0
        with content as stream:
            for line in read_lines(stream, MAX_LINE_BYTES, path):
                content_bytes += len(line)
                if content_bytes > max_content_bytes:
                    raise TooMuch(
                        f"{path} has {file_bytes >> 10} KiB and holds more than "
                        f"{max_content_bytes >> 20} MiB; "
                        "if you trust it, unpack it and name the unpacked file"
                    )
                yield line


def is_plain(path: Path, root: Path | None = None) -> bool:
    """Return whether a path is a plain file that is reached without a link below `root`.

    By default `root` is the file's own folder.
    """
    try:
        with _open_parent(path, root) as (folder_fd, name):
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            return stat.S_ISREG(status.st_mode)
    except (OSError, ValueError):
        return False


def list_names(folder: Path, root: Path | None = None) -> list[str]:
    """Return the sorted names in a folder; an empty list if the folder is missing.

    Raises:
        LinkRefused: The folder is a link, or a link below `root` leads to it.
        NotADirectoryError: It is no folder.
    """
    any_path_inside = folder / "x"  # `_open_parent` opens the folder around it
    try:
        with _open_parent(any_path_inside, root or folder.parent) as (folder_fd, _):
            return sorted(os.listdir(folder_fd))  # noqa: PTH208
    except FileNotFoundError:
        return []


# --- writing


def make_folder(folder: Path, root: Path | None = None) -> None:
    """Make a folder unless it exists; the folder around it must exist.

    Args:
        folder: The folder.
        root: The folder below which no link is followed; by default the folder around `folder`.

    Raises:
        LinkRefused: The folder is a link, or a link below `root` leads to it.
        OSError: It cannot be made, or something else has its name.
    """
    with _open_parent(folder, root) as (parent_fd, name):
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent_fd)
            os.fsync(parent_fd)  # the new name
        # What exists may be something else: opening it raises if it is a link or no folder.
        folder_fd = _open_folder(parent_fd, name, folder)
        os.close(folder_fd)


def remove(path: Path, root: Path | None = None) -> None:
    """Remove a file if it exists; of a link, the link and not the file to which it leads."""
    with suppress(FileNotFoundError), _open_parent(path, root) as (folder_fd, name):
        os.unlink(name, dir_fd=folder_fd)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content if it exists; a link or a file there is only unlinked."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)  # follows no link


def write_file(
    path: Path, content: str | Iterable[bytes], root: Path | None = None, synced: bool = True
) -> None:
    """Replace the content of a file atomically: if writing fails, the old file stays as it was.

    The content is written under a temporary name, which is then renamed. A link in place of the
    file is replaced.

    Args:
        path: The file.
        content: Its text, or the pieces of its bytes.
        root: The folder below which no link is followed; by default the file's own folder.
        synced: Wait until the file is on the disk.

    Raises:
        OSError: It cannot be written.
    """
    with _open_parent(path, root) as (folder_fd, name):
        temporary_name = f".{name}.{secrets.token_hex(8)}.tmp"
        try:
            file_fd = os.open(temporary_name, _NEW_FILE_FLAGS, 0o666, dir_fd=folder_fd)
            with os.fdopen(file_fd, "wb") as file:
                if isinstance(content, str):
                    file.write(content.encode())
                else:
                    file.writelines(content)
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.rename(temporary_name, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary_name, dir_fd=folder_fd)
            raise
        if synced:
            os.fsync(folder_fd)  # the new name


def remove_temporary_files(folder: Path, names: Iterable[str], root: Path | None = None) -> None:
    """Remove the temporary files that a killed process left of files that `write_file` wrote.

    Args:
        folder: The folder of the files.
        names: The final names of the files; no other process may be writing them now.
        root: The folder below which no link is followed; by default the parent of `folder`.
    """
    final_names = set(names)
    for name in list_names(folder, root):
        if name_behind_temporary(name) in final_names:
            remove(folder / name, root)


def name_behind_temporary(name: str) -> str | None:
    """Return the name of the file behind a temporary name of `write_file`; None for other names.

    `.page.html.0123456789abcdef.tmp` -> `page.html`
    """
    match = _TEMPORARY_NAME.fullmatch(name)
    return match[1] if match else None


def open_to_append(path: Path, root: Path | None = None) -> BufferedRandom:
    """Open a plain file to read it and to append to it; it is made if there is none.

    A file with a second name (a hard link) is first replaced by a copy, so that the content under
    the other name does not change.

    Args:
        path: The file.
        root: The folder below which no link is followed; by default the file's own folder.

    Raises:
        LinkRefused: It is a link, or a link below `root` leads to it.
        ValueError: It is no plain file.
        OSError: It cannot be opened.
    """
    with _open_parent(path, root) as (folder_fd, name):
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            _check_plain(status, path)
            has_other_names = status.st_nlink > 1
            if has_other_names:
                with open_plain(path, root) as file:
                    chunks = iter(lambda: file.read(1 << 20), b"")
                    write_file(path, chunks, root)
        fd = os.open(name, _APPEND_FLAGS, 0o666, dir_fd=folder_fd)
        # Somebody may have replaced the file after the first check.
        _close_unless_plain(fd, path)
        return os.fdopen(fd, "rb+")


def append_line(
    path: Path, line: str | bytes, *, root: Path | None = None, synced: bool = True
) -> None:
    """Append a line to a file, in place of a last line that a killed process left unfinished.

    Args:
        path: The file; it is made if there is none.
        line: The line, without a line feed.
        root: The folder below which no link is followed; by default the file's own folder.
        synced: Wait until the line is on the disk. Otherwise the system writes it soon, even if
            this process dies.

    Raises:
        OSError: It cannot be written. The next call removes whatever part of it was written.
        ValueError: See `open_to_append`.
    """
    with open_to_append(path, root) as file:
        old_size = os.fstat(file.fileno()).st_size
        if old_size > 0:  # an empty file cannot be mapped
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                end_of_finished_lines = content.rfind(b"\n") + 1
            file.truncate(end_of_finished_lines)
        line_bytes = line.encode() if isinstance(line, str) else line
        file.write(line_bytes + b"\n")
        file.flush()
        if synced:
            os.fsync(file.fileno())
    if old_size == 0:
        # The file may be new, and then its name has to be written to the disk as well.
        with _open_parent(path, root) as (folder_fd, _):
            os.fsync(folder_fd)


# --- locks and checks of folders


@contextmanager
def lock_folder(folder: Path, root: Path | None = None) -> Iterator[None]:
    """Lock a folder against other processes that call `lock_folder` on it; no lock file is made.

    Args:
        folder: The folder.
        root: The folder below which no link is followed; if it is None, `folder` may itself be a
            link.

    Raises:
        BlockingIOError: Another process has locked it.
    """
    if root is None:
        folder_fd = os.open(folder, _FOLDER_FLAGS)
    else:
        with _open_parent(folder, root) as (parent_fd, name):
            folder_fd = _open_folder(parent_fd, name, folder)
    try:
        try:
            fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is writing {folder}; "
                "wait until it has ended, or choose another folder with --out"
            ) from None
        yield
    finally:
        os.close(folder_fd)  # which also releases the lock


def make_writable_folder(folder: Path) -> None:
    """Make a folder unless it exists, and check that files can be written there by writing one.

    Raises:
        PermissionError: The folder cannot be made, or no file can be written there.
    """
    trial_file = folder / f".writable.{secrets.token_hex(8)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(trial_file, _NEW_FILE_FLAGS, 0o666)
        os.close(fd)
        trial_file.unlink()
    except OSError as error:
        raise PermissionError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with --out"
        ) from error


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_links_out_of(folder: Path) -> None:
    """Raise an error if a folder contains a link out of it, a pipe or a device; it may be missing.

    A command calls it before it continues its work in a folder in which other libraries, whose
    functions follow links, read and write as well.

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
            is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
            if stat.S_ISFIFO(mode) or is_device:
                raise ValueError(f"{path} is no plain file; remove it")


# --- TOML


def read_toml(path: Path, root: Path | None = None, follow: bool = False) -> dict[str, Any]:
    """Read a TOML file.

    The arguments and errors are those of `read_bytes`; ValueError also if it is not TOML, or would
    take too much memory to parse.
    """
    data = read_bytes(path, MAX_TOML_BYTES, root, follow)
    try:
        return parse_toml(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text in TOML.

    Raises:
        ValueError: It is not TOML, or is so long, so deeply nested or has keys of so many parts
            that the parser would take very much memory or time.
    """
    if len(text) > MAX_TOML_BYTES:
        raise ValueError(f"it has {len(text)} characters; at most {MAX_TOML_BYTES} are read")
    # Dots and brackets in comments and strings do not count. Comments are removed. A string becomes
    # an `s`, since it may be a part of a key: `a."b.c".d` -> `a.s.d`.
    bare_text = _TOML_STRINGS_AND_COMMENTS.sub(
        lambda match: "" if match[0].startswith("#") else "s", text
    )
    keys = _TOML_KEY_CANDIDATES.findall(bare_text)
    most_dots = max((key.count(".") for key in keys), default=0)
    if most_dots > MAX_TOML_KEY_DOTS:
        raise ValueError(f"a key has {most_dots} dots; at most {MAX_TOML_KEY_DOTS} are read")
    depth = 0
    for bracket in re.findall(r"[][{}]", bare_text):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_TOML_DEPTH:
            raise ValueError(f"its brackets are nested more than {MAX_TOML_DEPTH} deep")
    return tomllib.loads(text)


# --- paths without links


@contextmanager
def _open_parent(path: Path, root: Path | None) -> Iterator[tuple[int, str]]:
    """Open the folder that contains a file, following no link below `root`.

    Each folder on the way is opened relative to the one above it, so that nobody can exchange a
    part of the path between its check and its use.

    Args:
        path: The file, or the folder whose parent is wanted; it need not exist.
        root: A folder above it, which may itself be a link; by default its parent.

    Yields:
        The file descriptor of the parent, which is closed at the end of the `with` block, and the
        name of the file in it.

    Raises:
        LinkRefused: A folder between `root` and the file is a link, or an `os.open` in the `with`
            block failed because the file is one.
        ValueError: The path has a `..` below `root`, or is not below it.
        OSError: A folder is missing or cannot be opened.
    """
    top = path.parent if root is None else root
    *folder_names, name = path.relative_to(top).parts
    if ".." in (*folder_names, name):
        raise ValueError(f"{path} leads out of {top}; name a file within")
    folder_fd = os.open(top, _FOLDER_FLAGS)
    try:
        for folder_name in folder_names:
            fd_above = folder_fd
            folder_fd = (
                -1
            )  # if this folder cannot be opened, `finally` must not close `fd_above` again
            try:
                folder_fd = _open_folder(fd_above, folder_name, path)
            finally:
                os.close(fd_above)
        yield folder_fd, name
    except OSError as error:
        if error.filename == name:  # replaced by the whole path, for the message
            error.filename = str(path)
        if error.errno == errno.ELOOP:  # the system refused a link because of O_NOFOLLOW
            raise _link_refused(path) from None
        raise
    finally:
        if folder_fd >= 0:
            os.close(folder_fd)


def _open_folder(parent_fd: int, name: str, path: Path) -> int:
    """Open a folder by its name in an open folder, and return its file descriptor.

    Args:
        parent_fd: The file descriptor of the open folder.
        name: The name in it.
        path: The whole path, for the message.

    Raises:
        LinkRefused: The name is a link.
        OSError: It is no folder or cannot be opened.
    """
    status = os.stat(name, dir_fd=parent_fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise _link_refused(path)
    # Somebody may have put a link there after the check.
    return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent_fd)


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


def _close_unless_plain(fd: int, path: Path) -> None:
    """Close a file descriptor and raise ValueError if it is not that of a plain file."""
    try:
        _check_plain(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
