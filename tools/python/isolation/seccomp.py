"""Filters on system calls: what is listed here can be called, and nothing else.

The filter of a level is built once, as bytes of the kernel's filter language (`build_filter`), and
binds a process for good with all its descendants (`install`). A call that is not listed fails with
EPERM, one that is newer than the list with ENOSYS, as on an older kernel, and one of another
machine's calling conventions kills the process. Every worker has a second filter
(`build_last_filter`), which asks the `judge` about calls that name a process and, where programs
see the machine's files, about those that change a file's mode or times.

Sources: Linux's `linux/seccomp.h`, `linux/bpf_common.h`, `asm/unistd_64.h` (x86_64),
`asm-generic/unistd.h` (aarch64).
"""

import ctypes
import errno
import fcntl
import functools
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from . import linux
from .network import LocalNetwork


class CallNumbers(NamedTuple):
    """The numbers of a system call, None on a machine that has no such call."""

    x86_64: int
    aarch64: int | None


def _load_tables() -> dict[str, dict[str, CallNumbers]]:
    """Load the tables of calls, each with numbers by name, from `calls.json`."""
    tables = json.loads(Path(__file__).with_name("calls.json").read_text())
    return {
        table: {name: CallNumbers(*numbers) for name, numbers in calls.items()}
        for table, calls in tables.items()
    }


_TABLES = _load_tables()
_ALWAYS_ALLOWED = _TABLES["allowed"]
# Would reach beyond a session that has no file tree and network of its own.
_ALLOWED_IN_NAMESPACES = _TABLES["inside"]
# Change a file; at level `landlock` the judge carries them out itself, in the session's folder.
FILE_CHANGES = _TABLES["changes"]
# Needed to set up a sandbox; the second filter refuses them.
_SANDBOX_SETUP = _TABLES["entering"]
# Name a process by their first argument.
_PROCESS_CALLS = _TABLES["about_processes"]
# Name a process by their second argument, if the first is 0.
_PRIORITY_CALLS = _TABLES["priorities"]
# About extended attributes of files.
_EXTENDED_ATTRIBUTES = _TABLES["attributes"]
# Move pages of files to sockets and pipes (`sendfile`, `splice`), where no limit counts them.
PAGE_TRANSFERS = _TABLES["pages"]
# Allowed or not by their arguments.
_ALLOWED_BY_ARGUMENTS = _TABLES["by_arguments"]
CALLS = {name: numbers for table in _TABLES.values() for name, numbers in table.items()}
NEWEST = 469  # the newest call that is known here: file_setattr, of Linux 6.17

# Machines that have filters, each with its AUDIT_ARCH_*, by which the kernel tells a filter the
# calling conventions of a call.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # set in the numbers of calls by x32, other calling conventions of x86_64

# Arguments that the filters look at.
SOCKET_FAMILIES = {
    "namespaces": (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
    "landlock": (),
}
"""The families of `socket` at each level; `socketpair` makes AF_UNIX ones at all levels."""
_ALLOWED_PROTOCOLS = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
# Bit of the types SOCK_DGRAM and SOCK_RAW: each end of a pair of these can send to any address.
_DATAGRAM_BIT = 2
_SOL_SOCKET = 1
_REFUSED_OPTIONS = (7, 8, 13)  # SO_SNDBUF, SO_RCVBUF, SO_LINGER; at any level
# SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ZEROCOPY, SO_RESERVE_MEM
_REFUSED_SOCKET_OPTIONS = (32, 33, 60, 73)
_SOL_TCP = 6
_TCP_ULP = 31  # would put kernel code between a connection and its program, such as TLS

# Every CLONE_NEW* flag that clone takes, and CLONE_PARENT: a sibling of the process that makes it
# would be for the server to reap.
_REFUSED_CLONE_FLAGS = 0x7E020000 | 0x8000
_CLONE_FILES = 0x400
_CLONE_THREAD = 0x10000
_CLOSE_RANGE_UNSHARE = 2
# Pages from a pool of the machine, which nothing counts as memory of a process.
_MAP_HUGETLB = 0x40000
# MADV_COLD, MADV_PAGEOUT: memory that a program has moved to swap would not count as its own.
_REFUSED_ADVICE = (20, 21)
# Limits nothing: its value marks the processes of a server (`guard`).
_RLIMIT_LOCKS = 10
_ALLOWED_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux's own, and the query
_ALLOWED_IOCTL_REQUESTS = (
    0x5451,  # FIOCLEX
    0x5450,  # FIONCLEX
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x40049409,  # FICLONE
    0x8910,  # SIOCGIFNAME
    0x8933,  # SIOCGIFINDEX
)
# Duplicates, flags and locks; not owners, leases, notices, or larger pipes.
_ALLOWED_FCNTL_COMMANDS = (*range(8), 9, 11, 1025, 1030, 1032, 1034)
# F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW: locks of no process, which nobody could count.
_OPEN_FILE_LOCKS = (36, 37, 38)
# Death signal, names, timer slack, subreapers, privileges that are given up, large pages, names of
# memory.
_ALLOWED_PRCTL_OPTIONS = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 41, 42, 0x53564D41)

# Actions, SECCOMP_RET_*.
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ASK_JUDGE = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: ask whoever has the filter's listener
_ERRNO = 0x00050000  # with the error in the lower bits
_DENY = _ERRNO | errno.EPERM
_FAIL_ENOSYS = _ERRNO | errno.ENOSYS
_FAIL_EINVAL = _ERRNO | errno.EINVAL

# Operations of classic BPF, the filter language: a machine with one register of 32 bits.
_LOAD = 0x20  # a word of struct seccomp_data into the register
_JUMP = 0x05
_EQUAL = 0x15  # jump by whether the register equals the operand
_AT_LEAST = 0x35  # ... is at least the operand
_HAS_ANY_BIT = 0x45  # ... has any bit of the operand
_RETURN = 0x06  # end the program with an action

# Offsets into struct seccomp_data; its six arguments have 8 bytes each.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_SET_MODE_FILTER, _TSYNC, _NEW_LISTENER = 1, 1, 8  # arguments of the call `seccomp`

_BEGIN_SESSION = int.from_bytes(b"held own")
"""An argument of `setsid`, which takes none: it asks the judge to leave the present session."""


class Instruction(NamedTuple):
    """An instruction of classic BPF; a conditional jump skips some instructions after it."""

    operation: int
    skip_if_true: int
    skip_if_false: int
    operand: int


_INSTRUCTION = struct.Struct("<HBBI")  # struct sock_filter, with the fields of `Instruction`
_Code = list[Instruction]
_Rules = dict[str, _Code]  # code that ends with an action for a call, by the call's name


def reachable_calls(level: str) -> set[str]:
    """Return the names of the calls that programs can make, some only with certain arguments.

    Args:
        level: A level with a filter, "namespaces" or "landlock".
    """
    calls = {
        *_ALWAYS_ALLOWED,
        *FILE_CHANGES,
        *_PROCESS_CALLS,
        *_PRIORITY_CALLS,
        *_ALLOWED_BY_ARGUMENTS,
    }
    if level == "namespaces":
        calls.update(_ALLOWED_IN_NAMESPACES)
    calls.discard("clone3")
    if not SOCKET_FAMILIES[level]:
        calls.discard("socket")
    return calls


def call_number(name: str) -> int:
    """Return the number of a call of `CALLS` on this machine; -1 if it has no such call."""
    numbers = CALLS[name]
    number = numbers.x86_64 if _machine() == "x86_64" else numbers.aarch64
    return -1 if number is None else number


@functools.cache
def build_filter(level: str) -> bytes:
    """Build the first filter of a level, the list of the calls that are allowed.

    Args:
        level: A level with a filter, "namespaces" or "landlock".

    Returns:
        A program in the kernel's filter language, for `install`.

    Raises:
        NotImplementedError: There is no filter for this machine.
    """
    rules: _Rules = {
        name: [_return(_ALLOW)] for name in reachable_calls(level) | _SANDBOX_SETUP.keys()
    }
    for name in _EXTENDED_ATTRIBUTES:
        # The error of a file system without them, for which programs that copy files are prepared.
        rules[name] = [_return(_ERRNO | errno.EOPNOTSUPP)]
    for name in PAGE_TRANSFERS:
        # The error of files that do not support it: `shutil` and `socket.sendfile` then copy with
        # `read` and `write`.
        rules[name] = [_return(_FAIL_EINVAL)]
    rules |= _process_rules()
    rules |= _memory_rules()
    rules |= _descriptor_rules()
    rules |= _socket_rules(level)
    return _assemble(rules, other=[_return(_DENY)], newer=[_return(_FAIL_ENOSYS)])


def _process_rules() -> _Rules:
    """Return the first filter's rules about processes and what they inherit.

    A rule names an argument of a call by its position, from 0.
    """
    # clone(flags, ...). Threads must share their descriptors, and processes must not: else the
    # supervisor, which counts open files and locks by process, would miss some.
    clone_thread = _return_by_test(
        argument=0, test=_HAS_ANY_BIT, values=[_CLONE_FILES], if_true=_ALLOW, if_false=_DENY
    )
    clone_process = _return_by_test(
        argument=0, test=_HAS_ANY_BIT, values=[_CLONE_FILES], if_true=_DENY, if_false=_ALLOW
    )
    clone = [
        *_return_if(argument=0, test=_HAS_ANY_BIT, values=[_REFUSED_CLONE_FLAGS], action=_DENY),
        *_run_if(argument=0, test=_HAS_ANY_BIT, value=_CLONE_THREAD, code=clone_thread),
        *clone_process,
    ]
    # prlimit64(process, limit, new value, ...) and setrlimit(limit, new value). RLIMIT_LOCKS cannot
    # be changed, as the server marks its processes by it. A null pointer as new value only reads.
    deny_new_value = _return_unless_null(argument=2, action=_DENY)
    prlimit = [
        *_run_if(argument=1, test=_EQUAL, value=_RLIMIT_LOCKS, code=deny_new_value),
        _return(_ALLOW),
    ]
    # prctl(option, value, ...). PR_SET_DUMPABLE can only be set to 1: with 0, a process would hide
    # its memory from the supervisor, which measures it.
    set_dumpable = _allow_only_equal(argument=1, values=[1])
    prctl = [
        *_run_if(argument=0, test=_EQUAL, value=linux.PR_SET_DUMPABLE, code=set_dumpable),
        *_allow_only_equal(argument=0, values=_ALLOWED_PRCTL_OPTIONS),
    ]
    return {
        "clone": clone,
        # Its flags are in memory, which a filter cannot read; the C library falls back to clone.
        "clone3": [_return(_FAIL_ENOSYS)],
        "prlimit64": prlimit,
        "setrlimit": _return_by_test(
            argument=0, test=_EQUAL, values=[_RLIMIT_LOCKS], if_true=_DENY, if_false=_ALLOW
        ),
        "prctl": prctl,
        "personality": _allow_only_equal(argument=0, values=_ALLOWED_PERSONALITIES),
    }


def _memory_rules() -> _Rules:
    """Return the first filter's rules about memory that would not be counted."""
    return {
        # mmap(address, length, protection, flags, ...)
        "mmap": _return_by_test(
            argument=3,
            test=_HAS_ANY_BIT,
            values=[_MAP_HUGETLB],
            if_true=_ERRNO | errno.ENOMEM,
            if_false=_ALLOW,
        ),
        # madvise(address, length, advice)
        "madvise": _return_by_test(
            argument=2, test=_EQUAL, values=_REFUSED_ADVICE, if_true=_FAIL_EINVAL, if_false=_ALLOW
        ),
    }


def _descriptor_rules() -> _Rules:
    """Return the first filter's rules about descriptors of any kind."""
    return {
        # close_range(first, last, flags). The flag would give a thread its own descriptors.
        "close_range": _return_by_test(
            argument=2,
            test=_HAS_ANY_BIT,
            values=[_CLOSE_RANGE_UNSHARE],
            if_true=_FAIL_EINVAL,
            if_false=_ALLOW,
        ),
        # ioctl(descriptor, request, ...). Nothing in a sandbox is a terminal or a device; of the
        # other requests some change files that are open only for reading.
        "ioctl": _return_by_test(
            argument=1,
            test=_EQUAL,
            values=_ALLOWED_IOCTL_REQUESTS,
            if_true=_ALLOW,
            if_false=_ERRNO | errno.ENOTTY,
        ),
        # fcntl(descriptor, command, ...)
        "fcntl": [
            *_return_if(argument=1, test=_EQUAL, values=_OPEN_FILE_LOCKS, action=_FAIL_EINVAL),
            *_allow_only_equal(argument=1, values=_ALLOWED_FCNTL_COMMANDS),
        ],
    }


def _socket_rules(level: str) -> _Rules:
    """Return the first filter's rules about sockets."""
    has_network = bool(SOCKET_FAMILIES[level])
    # setsockopt(descriptor, level, option, ...). The memory limit counts a fixed size for each
    # socket, so programs may not ask for larger buffers. SO_LINGER could block the process that
    # closes the socket.
    deny_socket_options = _return_if(
        argument=2, test=_EQUAL, values=_REFUSED_SOCKET_OPTIONS, action=_DENY
    )
    deny_tcp_options = _return_if(argument=2, test=_EQUAL, values=[_TCP_ULP], action=_DENY)
    setsockopt = [
        *_run_if(argument=1, test=_EQUAL, value=_SOL_SOCKET, code=deny_socket_options),
        *_run_if(argument=1, test=_EQUAL, value=_SOL_TCP, code=deny_tcp_options),
        *_return_by_test(
            argument=2, test=_EQUAL, values=_REFUSED_OPTIONS, if_true=_DENY, if_false=_ALLOW
        ),
    ]
    # socketpair(family, type, ...). Without a network, a datagram socket is refused: it can send to
    # any address, not only to the other end of its pair.
    datagram_action = _ALLOW if has_network else _DENY
    socketpair = [
        *_deny_unless_equal(argument=0, values=[socket.AF_UNIX]),
        *_return_by_test(
            argument=1,
            test=_HAS_ANY_BIT,
            values=[_DATAGRAM_BIT],
            if_true=datagram_action,
            if_false=_ALLOW,
        ),
    ]
    rules = {"setsockopt": setsockopt, "socketpair": socketpair}
    if has_network:
        # socket(family, type, protocol)
        rules["socket"] = [
            *_deny_unless_equal(argument=0, values=SOCKET_FAMILIES[level]),
            *_allow_only_equal(argument=2, values=_ALLOWED_PROTOCOLS),
        ]
    return rules


@functools.cache
def build_last_filter(level: str) -> bytes:
    """Build the second filter of a level, which asks the `judge` what it cannot decide itself.

    The kernel applies it in addition to the first filter.

    Args:
        level: A level with a filter, "namespaces" or "landlock".

    Returns:
        A program in the kernel's filter language, for `install` with a listener.
    """
    # The sandbox is complete when this filter is installed.
    rules: _Rules = {name: [_return(_DENY)] for name in _SANDBOX_SETUP}
    for name in _PROCESS_CALLS:
        # Process 0 is the caller itself.
        rules[name] = _return_by_test(
            argument=0, test=_EQUAL, values=[0], if_true=_ALLOW, if_false=_ASK_JUDGE
        )
    for name in _PRIORITY_CALLS:
        # With 0 (PRIO_PROCESS) as first argument the second is a pid, else a whole group or user.
        rules[name] = [
            *_deny_unless_equal(argument=0, values=[0]),
            *_return_by_test(
                argument=1, test=_EQUAL, values=[0], if_true=_ALLOW, if_false=_ASK_JUDGE
            ),
        ]
    # The judge has to know which session was begun in which.
    rules["setsid"] = [_return(_ASK_JUDGE)]
    if level == "landlock":
        for name in FILE_CHANGES:
            rules[name] = [_return(_ASK_JUDGE)]
    if SOCKET_FAMILIES[level]:
        # Before a program gets a socket of the internet, the judge brings up the local network.
        internet = (socket.AF_INET, socket.AF_INET6)
        rules["socket"] = _return_by_test(
            argument=0, test=_EQUAL, values=internet, if_true=_ASK_JUDGE, if_false=_ALLOW
        )
    return _assemble(rules, other=[_return(_ALLOW)], newer=[_return(_ALLOW)])


def install(program: bytes, *, listening: bool = False) -> int:
    """Bind every thread of this process, and all its descendants, to a filter.

    Before that, it gives up gaining privileges by running a set-user-id program, which the kernel
    requires for a filter.

    Args:
        program: A filter by `build_filter` or `build_last_filter`.
        listening: Whether the filter asks a judge; this process may then have only one thread.

    Returns:
        The descriptor of the filter's listener, for `judge`; 0 without `listening`.

    Raises:
        OSError: The kernel has no such filters or refuses this one.
    """
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    # With NEW_LISTENER the result is a descriptor. With TSYNC, which binds all threads, it is 0, or
    # the number of a thread that cannot be bound.
    result = linux.syscall(
        "the kernel refuses a seccomp filter (it needs CONFIG_SECCOMP_FILTER and a sound program)",
        call_number("seccomp"),
        _SET_MODE_FILTER,
        _NEW_LISTENER if listening else _TSYNC,
        sock_fprog(program),
    )
    if result and not listening:
        raise OSError(
            errno.EBUSY,
            f"thread {result} has a seccomp filter of its own: install before it gets one",
        )
    return result


@functools.cache
def sock_fprog(program: bytes) -> bytes:
    """Return the kernel's struct sock_fprog: how many instructions a filter has, and their address.

    The struct has only the address of `program`, whose memory must not be freed: the cache of this
    function keeps it.
    """
    address = ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value
    instruction_count = len(program) // _INSTRUCTION.size
    return struct.pack("@HP", instruction_count, address)


def begin_session() -> None:
    """Have the judge separate this process from the session that it was forked from."""
    linux.syscall("setsid", call_number("setsid"), ctypes.c_ulong(_BEGIN_SESSION))


class CallRange(NamedTuple):
    """Calls with consecutive numbers and the same code; it ends where the next range begins."""

    first: int
    code: _Code


def _assemble(rules: _Rules, *, other: _Code, newer: _Code) -> bytes:
    """Build the program of a filter.

    Args:
        rules: Code for calls, by name.
        other: Code for all other calls up to `NEWEST`.
        newer: Code for calls with a number above `NEWEST`.

    Returns:
        The instructions, 8 bytes each.
    """
    # First kill a process that uses the calling conventions of another architecture, in which the
    # same numbers mean other calls.
    machine = _machine()
    program = [
        _load(_ARCHITECTURE),
        Instruction(_EQUAL, skip_if_true=1, skip_if_false=0, operand=_ARCHITECTURES[machine]),
        _return(_KILL),
        _load(_NUMBER),
    ]
    if machine == "x86_64":
        program += [
            Instruction(_AT_LEAST, skip_if_true=0, skip_if_false=1, operand=_X32_BIT),
            _return(_KILL),
        ]

    # Then find the code for the number of the call. Consecutive numbers with the same code need
    # only one range.
    code_by_number = {call_number(name): code for name, code in rules.items()}
    ranges: list[CallRange] = []
    for number in range(NEWEST + 1):
        code = code_by_number.get(number, other)
        if not ranges or code != ranges[-1].code:
            ranges.append(CallRange(number, code))
    if newer != ranges[-1].code:
        ranges.append(CallRange(NEWEST + 1, newer))
    program += _binary_search(ranges)
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


def _binary_search(ranges: list[CallRange]) -> _Code:
    """Return code that finds the range with the number in the register, and runs that range's code.

    It is a binary search, since the kernel runs a filter at every call.
    """
    if len(ranges) == 1:
        return ranges[0].code
    middle = len(ranges) // 2
    lower = _binary_search(ranges[:middle])
    upper = _binary_search(ranges[middle:])
    # A test can skip at most 255 instructions, an unconditional jump more. So the test only decides
    # whether the jump over the lower half is run.
    return [
        Instruction(_AT_LEAST, skip_if_true=0, skip_if_false=1, operand=ranges[middle].first),
        _jump_over(len(lower)),
        *lower,
        *upper,
    ]


def _return_by_test(
    argument: int, test: int, values: Sequence[int], *, if_true: int, if_false: int
) -> _Code:
    """Return code that ends with one action if an argument passes a test, else with another.

    Args:
        argument: Position of the argument, 0 to 5. Only its low 32 bits are tested, since the
            kernel reads no more of these arguments.
        test: `_EQUAL` or `_HAS_ANY_BIT`.
        values: It passes if the test is true for any of these.
        if_true: The action if it passes, such as `_ALLOW`.
        if_false: The action if it does not.
    """
    return [*_skip_next_if(argument, test, values), _return(if_false), _return(if_true)]


def _deny_unless_equal(argument: int, values: Sequence[int]) -> _Code:
    """Return code that refuses a call unless an argument is one of the values; else it goes on."""
    return [*_skip_next_if(argument, _EQUAL, values), _return(_DENY)]


def _allow_only_equal(argument: int, values: Sequence[int]) -> _Code:
    """Return code that allows a call if an argument is one of the values, and else refuses it."""
    return [*_deny_unless_equal(argument, values), _return(_ALLOW)]


def _return_if(argument: int, test: int, values: Sequence[int], action: int) -> _Code:
    """Return code that ends with an action if the test is true for an argument and any value."""
    return [
        *_skip_next_if(argument, test, values),
        _jump_over(1),
        _return(action),
    ]


def _skip_next_if(argument: int, test: int, values: Sequence[int]) -> _Code:
    """Return code that skips the next instruction if the test is true for any of the values."""
    code = [_load(_ARGUMENTS + 8 * argument)]
    for position, value in enumerate(values):
        # Past the tests of the other values, and the instruction after them.
        skipped = len(values) - position
        code.append(Instruction(test, skip_if_true=skipped, skip_if_false=0, operand=value))
    return code


def _run_if(argument: int, test: int, value: int, code: _Code) -> _Code:
    """Return code that runs other code only if the test is true for an argument and a value."""
    return [
        _load(_ARGUMENTS + 8 * argument),
        Instruction(test, skip_if_true=0, skip_if_false=len(code), operand=value),
        *code,
    ]


def _return_unless_null(argument: int, action: int) -> _Code:
    """Return code that ends with an action unless an argument, a pointer of 64 bits, is null."""
    # The register has 32 bits: first the lower half is compared with 0, then the upper half.
    return [
        _load(_ARGUMENTS + 8 * argument),
        Instruction(_EQUAL, skip_if_true=0, skip_if_false=2, operand=0),
        _load(_ARGUMENTS + 8 * argument + 4),
        Instruction(_EQUAL, skip_if_true=1, skip_if_false=0, operand=0),
        _return(action),
    ]


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, skip_if_true=0, skip_if_false=0, operand=offset)


def _jump_over(instructions: int) -> Instruction:
    return Instruction(_JUMP, skip_if_true=0, skip_if_false=0, operand=instructions)


def _return(action: int) -> Instruction:
    return Instruction(_RETURN, skip_if_true=0, skip_if_false=0, operand=action)


def _machine() -> str:
    """Return the name of this machine's architecture; NotImplementedError if it has no filter."""
    machine = os.uname().machine
    pointer_bits = 8 * struct.calcsize("P")
    if machine not in _ARCHITECTURES or pointer_bits != 64:
        raise NotImplementedError(
            f"no seccomp filter for a {pointer_bits}-bit Python on {machine!r}: "
            f"there are 64-bit ones for {', '.join(_ARCHITECTURES)}"
        )
    return machine


# Requests to a listener, SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND.
_RECEIVE_QUESTION = 0xC0502100
_SEND_ANSWER = 0xC0182101
# struct seccomp_notif: id, pid, flags, then struct seccomp_data: number, architecture, instruction
# pointer, six arguments.
_QUESTION = struct.Struct("=QII iIQ 6Q")
_ANSWER = struct.Struct("=Qq iI")  # struct seccomp_notif_resp: id, value, error, flags
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE: the kernel carries the call out

_MAX_OUTER_SESSIONS = 16  # sessions around a session that are remembered
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
# In place of a file's nanoseconds: set it to the present time, or leave it.
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_MAX_PATH = 4096  # bytes, as in the kernel
_TIMES = struct.Struct("=4q")  # two struct timespec: seconds and nanoseconds


def judge(listener: int, folder: str | None = None, network: LocalNetwork | None = None) -> None:
    """Decide about the calls that a filter asks about, until no process with the filter is left.

    A call that names another process is allowed if that process is in the caller's session, or in
    a session that was begun in it. Otherwise, as for a process of a fork of the session, it fails
    as if there were no such process. The judge changes modes and times of files itself: if it only
    allowed the call, a program could replace the path before the kernel reads it.

    Args:
        listener: The descriptor of the filter's listener, from `install`.
        folder: The only folder in which files may be changed, as a path without links; None if
            there is none.
        network: The local network of the boundary, if it has one. It is started before the first
            internet socket is opened.
    """
    call_judge = CallJudge(folder, network)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        [(_, events)] = poll.poll()
        if events & select.POLLHUP:  # no process with the filter is left
            return
        # A question is a call that waits in the kernel. The answer must carry the same id.
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE_QUESTION, question)
            question_id, caller_pid, _, number, _, _, *arguments = _QUESTION.unpack(question)
            ruling = call_judge.decide(caller_pid, number, arguments)
            answer = _ANSWER.pack(question_id, 0, -ruling.error, ruling.flags)
            fcntl.ioctl(listener, _SEND_ANSWER, answer)
        except OSError:
            continue  # the caller has ended, or does not wait any more


class Ruling(NamedTuple):
    """The answer to a question of a filter."""

    error: int  # the error number with which the call fails; 0 for success
    flags: int  # `_CONTINUE` if the kernel carries the call out, else 0


_LET_KERNEL_DO_IT = Ruling(0, _CONTINUE)
_DONE_BY_JUDGE = Ruling(0, 0)


class FileChange(NamedTuple):
    """A call that changes the mode or the times of a file."""

    folder: int  # the caller's descriptor of the folder that the path starts at, or _AT_FDCWD
    path: int  # address of the path in the caller's memory; 0 if `folder` itself is to be changed
    value: int  # the mode, or the address of the times
    flags: int


class CallJudge:
    """Decides about single calls; `judge` describes the arguments."""

    def __init__(self, folder: str | None, network: LocalNetwork | None) -> None:
        self.folder = folder
        self.network = network
        # For each session, those in which it was begun, the nearest first. The number of a session
        # is the pid of the process that began it.
        self.outer_sessions: dict[int, tuple[int, ...]] = {}

    def decide(self, caller_pid: int, number: int, arguments: list[int]) -> Ruling:
        """Decide about a call; change the file itself if the call asks for that.

        Args:
            caller_pid: The process that makes the call.
            number: The number of the call on this machine.
            arguments: Its six arguments as registers of 64 bits.

        Returns:
            Whether the kernel carries the call out, or the error with which it fails.
        """
        name = _call_names_by_number()[number]
        if name in FILE_CHANGES:
            try:
                self._change_file(caller_pid, name, arguments)
            except OSError as error:
                return Ruling(error.errno or errno.EPERM, 0)
            except (OverflowError, ValueError, struct.error):
                # An address or a time is out of range, or the memory there is not mapped.
                return Ruling(errno.EFAULT, 0)
            return _DONE_BY_JUDGE
        if name == "socket":
            if self.network:
                self.network.start()
            return _LET_KERNEL_DO_IT
        session = os.getsid(caller_pid)
        if name == "setsid":
            self._note_new_session(caller_pid, session, is_separate=arguments[0] == _BEGIN_SESSION)
            return _LET_KERNEL_DO_IT
        # Each of the other calls names a process.
        pid_argument = arguments[1] if name in _PRIORITY_CALLS else arguments[0]
        named_process = _signed_32_bit(pid_argument)
        if not self._is_in_session(named_process, session):
            return Ruling(errno.ESRCH, 0)
        return _LET_KERNEL_DO_IT

    def _note_new_session(self, caller_pid: int, session: int, *, is_separate: bool) -> None:
        """Remember in which session a new one is begun.

        Args:
            caller_pid: The process that begins a session; its pid is the number of the new session.
            session: The session that it leaves.
            is_separate: Whether the new session is a fork, so that the old one may not reach it.
        """
        if is_separate:
            self.outer_sessions.pop(caller_pid, None)
        elif caller_pid != session:  # else it has begun `session` itself, and the kernel refuses
            outer = (session, *self.outer_sessions.get(session, ()))
            self.outer_sessions[caller_pid] = outer[:_MAX_OUTER_SESSIONS]

    def _is_in_session(self, pid: int, session: int) -> bool:
        """Return whether a process is in a session, or in a session that was begun in it.

        Args:
            pid: The process, or minus the number of a process group, as `kill` takes it.
            session: The session.
        """
        try:
            process_session = os.getsid(abs(pid))
        except (OSError, OverflowError):  # there is no such process
            return False
        if process_session == session:
            return True
        return session in self.outer_sessions.get(process_session, ())

    def _change_file(self, caller_pid: int, name: str, arguments: list[int]) -> None:
        """Change the mode or the times of a file, as a call of `FILE_CHANGES` would.

        Args:
            caller_pid: The process that makes the call.
            name: The name of the call.
            arguments: Its six arguments as registers of 64 bits.

        Raises:
            OSError: The call fails, with the kernel's error; PermissionError if the file is not
                in the judge's folder.
        """
        change = _parse_change(name, arguments)
        target_fd = _open_target(caller_pid, change)
        try:
            # Checked and changed by its descriptor, as a program may replace the path meanwhile.
            target_path = Path(f"/proc/self/fd/{target_fd}")
            if self.folder is None or not str(target_path.readlink()).startswith(f"{self.folder}/"):
                raise PermissionError(errno.EPERM, "it lies elsewhere")
            if name == "utimensat":
                _set_times(target_path, caller_pid, change.value)
            else:
                target_path.chmod(change.value & 0o777)
        finally:
            os.close(target_fd)


def _parse_change(name: str, arguments: list[int]) -> FileChange:
    """Sort out the arguments, registers of 64 bits, of a call of `FILE_CHANGES`."""
    # chmod(path, mode)
    if name == "chmod":
        path, mode = arguments[:2]
        return FileChange(_AT_FDCWD, path, mode, flags=0)
    folder = _signed_32_bit(arguments[0])
    # fchmod(descriptor, mode)
    if name == "fchmod":
        return FileChange(folder, path=0, value=arguments[1], flags=0)
    # fchmodat(folder, path, mode), fchmodat2(folder, path, mode, flags),
    # utimensat(folder, path, times, flags)
    flags = 0 if name == "fchmodat" else _signed_32_bit(arguments[3])
    return FileChange(folder, path=arguments[1], value=arguments[2], flags=flags)


def _open_target(caller_pid: int, change: FileChange) -> int:
    """Open the file that a process wants to change, without access to its contents.

    Returns:
        A descriptor, with O_PATH.
    """
    # `/proc` links to the caller's current folder and to its open descriptors.
    folder_link = "cwd" if change.folder == _AT_FDCWD else f"fd/{change.folder}"
    target_path = Path(f"/proc/{caller_pid}", folder_link)
    open_flags = os.O_PATH | os.O_CLOEXEC
    if change.path:
        # The path ends with a NUL byte. An absolute one replaces the folder.
        path, _, _ = _read_memory(caller_pid, change.path, _MAX_PATH).partition(b"\0")
        target_path /= os.fsdecode(path)
        if change.flags & _AT_SYMLINK_NOFOLLOW:
            open_flags |= os.O_NOFOLLOW
    return os.open(target_path, open_flags)


def _set_times(path: Path, caller_pid: int, times_address: int) -> None:
    """Set a file's access and modification times as `utimensat` does.

    Args:
        path: The file.
        caller_pid: The process that makes the call.
        times_address: The address in its memory of two struct timespec; 0 sets both times to now.
    """
    if not times_address:
        os.utime(path)
        return
    status = path.stat()
    now = time.time_ns()
    timespecs = _read_memory(caller_pid, times_address, _TIMES.size)
    access_s, access_ns, modification_s, modification_ns = _TIMES.unpack(timespecs)
    accessed = _time_to_set(access_s, access_ns, now=now, current=status.st_atime_ns)
    modified = _time_to_set(modification_s, modification_ns, now=now, current=status.st_mtime_ns)
    os.utime(path, ns=(accessed, modified))


def _time_to_set(seconds: int, nanoseconds: int, *, now: int, current: int) -> int:
    """Return the time, in nanoseconds since 1970, that a struct timespec means in `utimensat`.

    Args:
        seconds: Its first field.
        nanoseconds: Its second field, or a value that means `now` or `current`.
        now: The present time.
        current: The time that the file has.
    """
    if nanoseconds == _UTIME_NOW:
        return now
    if nanoseconds == _UTIME_OMIT:
        return current
    return seconds * 10**9 + nanoseconds


@functools.cache
def _call_names_by_number() -> dict[int, str]:
    return {call_number(name): name for name in CALLS}


def _read_memory(pid: int, address: int, size: int) -> bytes:
    """Read the memory of a process; fewer bytes than `size` if what follows is not mapped."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)


def _signed_32_bit(register: int) -> int:
    """Return the number that the kernel reads from a register as an int: `2**32 - 1` -> -1."""
    return ctypes.c_int(register & 0xFFFFFFFF).value
