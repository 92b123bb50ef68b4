"""How strongly the Python tool is confined: three levels with honest names, and what this machine can give.

namespaces
    A user, process, network, mount, IPC and host-name namespace for every session, a read-only file tree without
    anyone's files, a file system in memory of 64 MiB, a system-call filter, limits. The default.
landlock
    Files are out of reach by the kernel's Landlock, the network and other processes by a system-call filter; process
    numbers and what the machine tells of itself are seen.
rlimits-only
    Limits on resources alone: the code can read what the user can read, and reach the network. Unsafe.
"""

import functools

from ..core import ToolFailure

LEVELS = ("namespaces", "landlock", "rlimits-only")
"""The strongest first."""


class LevelRefused(ToolFailure):
    """This machine cannot give the level that was asked for."""

    def __init__(self, level: str, reason: str) -> None:
        weaker = LEVELS[LEVELS.index(level) + 1 :]
        remedy = " or ".join(f"level={name!r}" for name in weaker)
        allow = f"; to allow a weaker level, ask for {remedy} (docs/python-tool.md says what it gives up)"
        super().__init__(f"the Python tool cannot run at level {level!r}: {reason}{allow if weaker else ''}")
        self.level, self.reason = level, reason


def check_level(level: str) -> None:
    """Raise ValueError for what is no level."""
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")


@functools.cache
def probe() -> dict[str, str | None]:
    """Try each level on this machine: None where it works, else the reason. Takes about a second the first time."""
    return {level: _try(level) for level in LEVELS}


def require(level: str) -> None:
    """Raise `LevelRefused` unless this machine can give `level`; `ToolFailure` where the tool cannot run at all."""
    from .session import open_session

    open_session(level, "").end()


def _try(level: str) -> str | None:
    try:
        require(level)
    except LevelRefused as error:
        return error.reason
    except ToolFailure as error:
        return str(error)
    return None
