"""Landlock: which files a process may read, write and execute, kept by the kernel.

With Landlock a process gives up all files but those under paths that it names. A ruleset is built once and enforced in
each child after its fork, as a domain of its own: children that share one still cannot signal one another. It hides no
metadata of paths, nor stops connections to the path of a listening unix socket. Source: `linux/landlock.h`.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence

from .linux import PR_SET_NO_NEW_PRIVS, prctl, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_FIRST = (1 << 13) - 1  # the rights of the first ABI
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_UNIX_SOCKET, _SIGNAL = 1 << 0, 1 << 1


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 where it has none, or where it is disabled or forbidden."""
    with contextlib.suppress(OSError):
        return syscall(
            "landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION
        )
    return 0


def landlock_ruleset(
    *, read: Sequence[str], write: Sequence[str], listed: Sequence[str] = ()
) -> int:
    """Return the descriptor of a ruleset, for `enforce_landlock`.

    Under a `read` path files can be read, run and listed, under a `listed` path folders be listed; under a `write` path
    everything but device nodes can also be changed or made. From version 2 on files move between write paths, from 4
    there is no TCP, from 6 signals and abstract unix sockets reach only what is under the same restriction. Raises
    OSError where the kernel has no Landlock, or a path, which is named, cannot be opened.
    """
    if not (version := landlock_version()):
        message = "this kernel has no Landlock, or it is disabled (CONFIG_SECURITY_LANDLOCK, boot option lsm=landlock)"
        raise OSError(errno.EOPNOTSUPP, message)
    newer = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    rights = _FIRST | sum(right for since, right in newer if version >= since)
    # struct landlock_ruleset_attr, which newer versions made longer
    fields = ((1, rights), (4, _BIND_TCP | _CONNECT_TCP), (6, _ABSTRACT_UNIX_SOCKET | _SIGNAL))
    attr = b"".join(struct.pack("=Q", field) for since, field in fields if version >= since)
    size = ctypes.c_size_t(len(attr))
    ruleset = syscall("the kernel refuses a Landlock ruleset", _CREATE_RULESET, attr, size, 0)
    writing = rights & ~(_MAKE_CHAR | _MAKE_BLOCK)
    try:
        for paths, allowed in ((read, rights & _READING), (listed, _READ_DIR), (write, writing)):
            for path in paths:
                _allow(ruleset, path, allowed)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce_landlock(ruleset: int) -> None:
    """Bind this thread and its descendants, and close the descriptor: its holder could widen the next child's."""
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall("the kernel refuses to enforce the Landlock ruleset", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _ON_FILES
        attr = struct.pack("=Qi", rights, beneath)  # struct landlock_path_beneath_attr
        syscall(
            f"the kernel refuses a Landlock rule for {path!r}",
            _ADD_RULE,
            ruleset,
            _RULE_PATH_BENEATH,
            attr,
            0,
        )
    finally:
        os.close(beneath)
