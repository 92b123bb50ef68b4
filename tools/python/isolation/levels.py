"""What confines the Python tool: three levels, and limits on resources.

namespaces
    A user, process, network, mount, IPC and host-name namespace for every session, a read-only file tree without
    anyone's files, a file system in memory of 64 MiB, a system-call filter, limits. The default.
landlock
    Files are out of reach by the kernel's Landlock, the network and other processes by a system-call filter; process
    numbers and what the machine tells of itself are seen.
rlimits-only
    Limits on resources alone: the code can read what the user can read, and reach the network. Unsafe.
"""

import contextlib
import errno
import os
import resource
from pathlib import Path

from ...subprocesses import messages

LEVELS = ("namespaces", "landlock", "rlimits-only")
"""The isolation levels, the strongest first."""


LIBRARIES = ("numpy", "sympy")  # what a zygote may have preloaded for programs of its kind
KINDS = ("", *LIBRARIES, "+".join(LIBRARIES))
SOURCE_CAP = 2**20  # bytes of a program
OUTPUT_CAP = 2**20  # bytes of output that are read; a program that writes more is stopped
_CLOSED = 512  # entries that a folder counts as that its owner has closed
PROCESSES = 64  # processes and threads of a session and its forks
FILE = 16 * 2**20  # bytes of one file
OPEN_FILES = 128  # open files of a process
USER = 1000  # the user and group that sandboxed code runs as, in its own user namespace


def remove_folder(folder: str | Path) -> None:
    """Remove a work folder, whatever a program made of it: `shutil.rmtree` fails where folders are deep or closed."""
    pending = [
        top := Path(folder)
    ]  # what is in a folder within it is moved up, so that no path is long
    while pending:
        with contextlib.suppress(OSError):
            (place := pending.pop()).chmod(0o700)
            for path in place.iterdir():
                with contextlib.suppress(OSError):
                    if path.is_symlink() or not path.is_dir():
                        path.unlink()
                    else:
                        path.chmod(0o700)
                        pending.append(path.rename(top / os.urandom(8).hex()))
            if place != top:
                place.rmdir()
    with contextlib.suppress(OSError):
        top.rmdir()


def count_entries(folder: str | Path, most: int) -> int:
    """Return the number of files, folders and links below a folder, or more than `most` if there are more.

    A folder that cannot be listed counts as `_CLOSED`. One whose path is too long for the kernel is too many.
    """
    entries, pending = 0, [str(folder)]
    while pending and entries <= most:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if entries > most:
                        break
        except PermissionError:
            entries += _CLOSED
        except OSError as error:  # it may also have gone
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
    return entries


def set_limits() -> None:
    limits = {
        resource.RLIMIT_FSIZE: FILE,
        resource.RLIMIT_NOFILE: open_files(),
        resource.RLIMIT_NPROC: PROCESSES,
    }
    limits |= dict.fromkeys(
        (resource.RLIMIT_CORE, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK), 0
    )
    for what, value in (limits | {resource.RLIMIT_SIGPENDING: 16 * PROCESSES}).items():
        messages.limit(what, value)


def open_files() -> int:
    """Return how many files a session's process may have open: `OPEN_FILES`, or fewer where the machine says so."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
