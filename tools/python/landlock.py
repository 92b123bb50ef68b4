"""Landlock: a process gives up all files but those under paths that it names, without any privilege.

A ruleset is built once and enforced in each child after its fork; each enforcement is a domain of its own, so children
that share a ruleset still cannot signal one another. It does not hide what a path's metadata tells (stat works
everywhere), nor does it stop connections to the path of a listening unix socket.

Source: Linux's `linux/landlock.h` and its Documentation/userspace-api/landlock.rst.
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Sequence

from .seccomp import no_new_privs

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


def abi() -> int:
    """The version of the kernel's Landlock; 0 where it has none, or where it is disabled or forbidden."""
    return max(0, int(_syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)))


def restrict(*, read: Sequence[str], write: Sequence[str]) -> None:
    """Build a ruleset and enforce it here; errors are those of the two."""
    enforce(build(read=read, write=write))


def build(*, read: Sequence[str], write: Sequence[str]) -> int:
    """A ruleset's descriptor, for `enforce`.

    Under a `read` path files can be read, run and listed; under a `write` path everything but device nodes can also be
    changed or made. From ABI 2 on files move between write paths, from 4 there is no TCP, from 6 signals and abstract
    unix sockets reach only what is under the same restriction. Raises OSError naming a path that cannot be opened, and
    where the kernel has no Landlock.
    """
    version = abi()
    if not version:
        message = "this kernel has no Landlock, or it is disabled (CONFIG_SECURITY_LANDLOCK, boot option lsm=landlock)"
        raise OSError(errno.EOPNOTSUPP, message)
    rights = _rights(version)
    ruleset = _create(version, rights)
    try:
        for path in read:
            _allow(ruleset, path, rights & _READING)
        for path in write:
            _allow(ruleset, path, rights & ~(_MAKE_CHAR | _MAKE_BLOCK))
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def enforce(ruleset: int) -> None:
    """Bind this thread and all its descendants, and close the descriptor here: its holder could widen the next child's.

    Raises OSError, as where 16 restrictions are in force already.
    """
    try:
        no_new_privs()
        if _syscall(_RESTRICT_SELF, ruleset, 0):
            raise _error("the kernel refuses to enforce the Landlock ruleset")
    finally:
        os.close(ruleset)


def _rights(version: int) -> int:
    """All rights on files that this version knows."""
    newer = ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
    return _FIRST | sum(right for since, right in newer if version >= since)


def _create(version: int, rights: int) -> int:
    fields = [rights]  # struct landlock_ruleset_attr, which newer versions made longer
    if version >= 4:
        fields.append(_BIND_TCP | _CONNECT_TCP)
    if version >= 6:
        fields.append(_ABSTRACT_UNIX_SOCKET | _SIGNAL)
    attr = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = int(_syscall(_CREATE_RULESET, attr, ctypes.c_size_t(len(attr)), 0))
    if ruleset < 0:
        raise _error("the kernel refuses a Landlock ruleset")
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _ON_FILES
        attr = struct.pack("=Qi", rights, beneath)  # struct landlock_path_beneath_attr
        if _syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, attr, 0):
            raise _error(f"the kernel refuses a Landlock rule for {path!r}")
    finally:
        os.close(beneath)


def _error(message: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{message}: {os.strerror(number)}")


_libc = ctypes.CDLL(None, use_errno=True)
# Looked up once: in a fresh fork the look-up costs more than the call.
_syscall = _libc.syscall
