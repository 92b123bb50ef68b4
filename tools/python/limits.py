"""The limits of a boundary that nobody chooses."""

import resource

SOURCE_CAP = 2**20
"""Bytes of a program."""
OUTPUT_CAP = 2**20
"""Bytes of output that are read; a program that writes more is stopped."""
DISK = 64 * 2**20
"""Bytes of all files, in memory, of a session and its forks."""
INODES = 8192
"""Files and folders of a session and its forks."""
PROCESSES = 64
"""Processes and threads of a session and its forks."""
FILE = 16 * 2**20
"""Bytes of one file."""
OPEN_FILES = 128
"""Open files of a process."""


def confine() -> None:
    """Limit this process and what it starts."""
    for what, value in (
        (resource.RLIMIT_FSIZE, FILE),
        (resource.RLIMIT_NOFILE, open_files()),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        _lower(what, value)


def open_files() -> int:
    """How many files a session's process may have open: `OPEN_FILES`, or fewer where the machine allows fewer."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)


def raise_open_files() -> None:
    """Let this process open as many files as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit_memory(address_space: int) -> None:
    """Limit the address space of this process and of what it starts to so many bytes."""
    _lower(resource.RLIMIT_AS, address_space)


def _lower(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (limit, limit))
