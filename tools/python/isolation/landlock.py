"""Landlock: which files a process may read, write and execute, enforced by the kernel.

With Landlock a process gives up all files but those under paths that it names. A ruleset is built
once (`landlock_ruleset`) and enforced in each child after its fork (`enforce_landlock`), which puts
each child into its own domain: children that share a ruleset still cannot signal one another.
Landlock hides no metadata of paths, nor does it prevent connections to the path of a listening unix
socket. Source: `linux/landlock.h`.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence

from .linux import PR_SET_NO_NEW_PRIVS, prctl, syscall

# Numbers of the system calls, the same on every machine.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446

_CREATE_RULESET_VERSION = 1  # a flag: return the version of Landlock instead of a ruleset
_RULE_PATH_BENEATH = 1  # the kind of a rule about a path and all that is beneath it

# Rights, LANDLOCK_ACCESS_FS_*.
_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_MAKE_CHAR = 1 << 6
_MAKE_BLOCK = 1 << 11
_REFER = 1 << 13  # to move or link a file to another folder
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_RIGHTS_OF_VERSION_1 = (1 << 13) - 1
_NEWER_RIGHTS = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))  # by the version that added them
_RIGHTS_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READING = _EXECUTE | _READ_FILE | _READ_DIR

_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1  # LANDLOCK_ACCESS_NET_*
_ABSTRACT_UNIX_SOCKET, _SIGNAL = 1 << 0, 1 << 1  # LANDLOCK_SCOPE_*


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none, or a disabled one."""
    with contextlib.suppress(OSError):
        return syscall(
            "landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION
        )
    return 0


def landlock_ruleset(
    *, read: Sequence[str], write: Sequence[str], listed: Sequence[str] = ()
) -> int:
    """Build a ruleset that denies access to all files but those under some paths.

    Newer versions of Landlock do more: with version 2 files can be moved between `write` paths,
    with 4 there is no TCP, and with 6 signals and abstract unix sockets only reach processes under
    the same restriction.

    Args:
        read: Paths under which files can be read, run and listed.
        write: Paths under which everything but device nodes can also be changed or made.
        listed: Paths under which folders can be listed.

    Returns:
        The descriptor of the ruleset, for `enforce_landlock`.

    Raises:
        OSError: The kernel has no Landlock, or a path cannot be opened; the message names it.
    """
    version = landlock_version()
    if not version:
        raise OSError(
            errno.EOPNOTSUPP,
            "this kernel has no Landlock, or it is disabled "
            "(CONFIG_SECURITY_LANDLOCK, boot option lsm=landlock)",
        )
    # A ruleset must name all rights that it restricts, and none that the kernel does not know.
    rights = _RIGHTS_OF_VERSION_1
    for since_version, right in _NEWER_RIGHTS:
        if version >= since_version:
            rights |= right
    attributes = _ruleset_attributes(version, rights)
    ruleset = syscall(
        "the kernel refuses a Landlock ruleset",
        _CREATE_RULESET,
        attributes,
        ctypes.c_size_t(len(attributes)),
        0,
    )
    all_but_making_devices = rights & ~(_MAKE_CHAR | _MAKE_BLOCK)
    try:
        for path in read:
            _allow_beneath(ruleset, path, rights & _READING)
        for path in listed:
            _allow_beneath(ruleset, path, _READ_DIR)
        for path in write:
            _allow_beneath(ruleset, path, all_but_making_devices)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce_landlock(ruleset: int) -> None:
    """Bind this thread and its descendants to a ruleset, and close the ruleset's descriptor.

    A program that had the descriptor could add rules, which would apply to the next child that
    enforces the ruleset.
    """
    try:
        # The kernel requires this, so that the process cannot gain privileges by a set-user-id
        # program.
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        syscall("the kernel refuses to enforce the Landlock ruleset", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _ruleset_attributes(version: int, file_rights: int) -> bytes:
    """Return struct landlock_ruleset_attr, to which newer versions of Landlock added fields."""
    attributes = struct.pack("=Q", file_rights)
    if version >= 4:
        attributes += struct.pack("=Q", _BIND_TCP | _CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_UNIX_SOCKET | _SIGNAL)
    return attributes


def _allow_beneath(ruleset: int, path: str, rights: int) -> None:
    """Add a rule that allows the rights on a path and on all that is beneath it."""
    path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(path_fd).st_mode):
            rights &= _RIGHTS_ON_FILES  # the kernel refuses rights of folders on a file
        path_beneath = struct.pack("=Qi", rights, path_fd)  # struct landlock_path_beneath_attr
        syscall(
            f"the kernel refuses a Landlock rule for {path!r}",
            _ADD_RULE,
            ruleset,
            _RULE_PATH_BENEATH,
            path_beneath,
            0,
        )
    finally:
        os.close(path_fd)
