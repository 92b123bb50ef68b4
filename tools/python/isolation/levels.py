"""What confines the Python tool: three levels, and limits on resources.

namespaces
    A user, process, network, mount, IPC and host-name namespace for every session, a read-only
    file tree without anyone's files, a file system in memory of 64 MiB, a system-call filter,
    limits. The default.
landlock
    Files are out of reach by the kernel's Landlock, the network and other processes by a
    system-call filter; process numbers and what the machine tells about itself are seen.
rlimits-only
    Only limits on resources: the code can read what the user can read, and reach the network.
    Unsafe.
"""

import contextlib
import errno
import os
import resource
from pathlib import Path

from ...subprocesses import messages

LEVELS = ("namespaces", "landlock", "rlimits-only")
"""The isolation levels, the strongest first."""

LIBRARIES = ("numpy", "sympy")  # that a zygote, a warm interpreter, may have imported in advance
LIBRARY_COMBINATIONS = (
    "",
    *LIBRARIES,
    "+".join(LIBRARIES),
)  # of zygotes, by the libraries that each imports
SOURCE_CAP = 2**20  # bytes of a program
OUTPUT_CAP = 2**20  # bytes of output that are read; a program that writes more is stopped
MAX_PROCESSES = 64  # processes and threads of a session and its forks
MAX_FILE_BYTES = 16 * 2**20  # of one file
MAX_OPEN_FILES = 128  # open files of a process
SANDBOX_USER = 1000  # user and group id of sandboxed code, in its own user namespace
_UNREADABLE_FOLDER_ENTRIES = 512  # that are assumed in a folder which cannot be listed


def set_limits() -> None:
    """Limit the resources of this process and of all that it starts.

    A limit that is already lower stays as it is.
    """
    limits = {
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_NOFILE: max_open_files(),
        resource.RLIMIT_NPROC: MAX_PROCESSES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_SIGPENDING: 16 * MAX_PROCESSES,
    }
    for limited_resource, limit in limits.items():
        messages.set_resource_limit(limited_resource, limit)


def max_open_files() -> int:
    """Return how many files a process of a session may have open.

    That is `MAX_OPEN_FILES`, or the machine's hard limit if that is lower.
    """
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard_limit == resource.RLIM_INFINITY:
        return MAX_OPEN_FILES
    return min(MAX_OPEN_FILES, hard_limit)


def remove_folder(folder: str | Path) -> None:
    """Remove a work folder, even if a program has made that difficult.

    `shutil.rmtree` fails if a program has nested folders too deeply, or has removed its own
    permissions on them. Here each folder gets its permissions back, and its subfolders are moved
    to the top under random names, so that no path gets long. What cannot be removed stays.
    """
    top = Path(folder)
    pending = [top]
    while pending:
        current = pending.pop()
        with contextlib.suppress(OSError):
            current.chmod(0o700)
            for path in current.iterdir():
                with contextlib.suppress(OSError):
                    if path.is_symlink() or not path.is_dir():
                        path.unlink()
                    else:
                        path.chmod(0o700)
                        pending.append(path.rename(top / os.urandom(8).hex()))
            if current != top:
                current.rmdir()
    with contextlib.suppress(OSError):
        top.rmdir()


def count_entries(folder: str | Path, most: int) -> int:
    """Count the files, folders and links below a folder.

    A folder that may not be listed counts as `_UNREADABLE_FOLDER_ENTRIES`.

    Args:
        folder: The folder.
        most: Counting stops when there are more.

    Returns:
        The number, or some number above `most`. It is also above `most` if a path is too long for
        the kernel, as any number of files could be below it.
    """
    entries = 0
    pending = [str(folder)]
    while pending and entries <= most:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if entries > most:
                        break
        except PermissionError:
            entries += _UNREADABLE_FOLDER_ENTRIES
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return most + 1
            # Any other error means that the folder has been removed meanwhile.
    return entries
