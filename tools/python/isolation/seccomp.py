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
_ALLOWED = _TABLES["allowed"]
# Would reach beyond a session that has no file tree and network of its own.
_INSIDE = _TABLES["inside"]
# Change a file; at level `landlock` the judge carries them out itself, in the session's folder.
CHANGES = _TABLES["changes"]
# Needed on the way into a sandbox; the second filter refuses them.
_ENTERING = _TABLES["entering"]
# Name a process by their first argument.
_ABOUT_PROCESSES = _TABLES["about_processes"]
# Name a process by their second argument, if the first is 0.
_PRIORITIES = _TABLES["priorities"]
# About extended attributes: fail as on a file system without them, for which programs that copy
# files are prepared.
_ATTRIBUTES = _TABLES["attributes"]
# Hand pages of files to sockets and pipes, where nothing counts them.
PAGES = _TABLES["pages"]
# Allowed or not by their arguments.
_BY_ARGUMENTS = _TABLES["by_arguments"]
CALLS = {name: numbers for table in _TABLES.values() for name, numbers in table.items()}
NEWEST = 469  # the newest call that is known here: file_setattr, of Linux 6.17

# Machines that have filters, each with its AUDIT_ARCH_*, by which the kernel tells a filter the
# calling conventions of a call.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # set in the numbers of calls by x32, other calling conventions of x86_64

# Arguments that the filters look at.
SOCKETS = {
    "namespaces": (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
    "landlock": (),
}
"""The families of `socket` at each level; `socketpair` makes AF_UNIX ones at all levels."""
_PROTOCOLS = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
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
_CLONE_REFUSED = 0x7E020000 | 0x8000
_CLONE_FILES = 0x400
_CLONE_THREAD = 0x10000
_CLOSE_RANGE_UNSHARE = 2
# Pages from a pool of the machine, which nothing counts as memory of a process.
_MAP_HUGETLB = 0x40000
# MADV_COLD, MADV_PAGEOUT: memory that a program has moved to swap would not count as its own.
_REFUSED_ADVICE = (20, 21)
# Limits nothing: its value is the mark by which a server knows its processes (`guard`).
_RLIMIT_LOCKS = 10
_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux's own, and the query
_IOCTLS = (
    0x5451,  # FIOCLEX
    0x5450,  # FIONCLEX
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x40049409,  # FICLONE
    0x8910,  # SIOCGIFNAME
    0x8933,  # SIOCGIFINDEX
)
# Duplicates, flags and locks; not owners, leases, notices, or larger pipes.
_FCNTLS = (*range(8), 9, 11, 1025, 1030, 1032, 1034)
# F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW: locks of no process, which nobody could count.
_OPEN_FILE_LOCKS = (36, 37, 38)
# Death signal, names, timer slack, subreapers, privileges that are given up, large pages, names of
# memory.
_PRCTLS = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 41, 42, 0x53564D41)

# Actions, SECCOMP_RET_*.
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ASK = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: ask whoever has the filter's listener
_ERRNO = 0x00050000  # with the error in the lower bits
_DENY = _ERRNO | errno.EPERM
_ABSENT = _ERRNO | errno.ENOSYS
_INVALID = _ERRNO | errno.EINVAL

# Operations of classic BPF, the filter language: a machine with one register of 32 bits.
_LOAD = 0x20  # a word of struct seccomp_data into the register
_JUMP = 0x05
_EQUAL = 0x15  # jump by whether the register equals the operand
_AT_LEAST = 0x35  # ... is at least the operand
_ANY_BIT = 0x45  # ... has any bit of the operand
_RETURN = 0x06  # end the program with an action

# Offsets into struct seccomp_data; its six arguments have 8 bytes each.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_SET_MODE_FILTER, _TSYNC, _NEW_LISTENER = 1, 1, 8  # arguments of the call `seccomp`

_BEGIN_SESSION = int.from_bytes(b"held own")
"""An argument of `setsid`, which takes none: it asks the judge to leave the present session."""


class Instruction(NamedTuple):
    """An instruction of classic BPF; a jump skips a number of the instructions after it."""

    operation: int
    jump_if_true: int
    jump_if_false: int
    operand: int


_Code = list[Instruction]
_Rules = dict[str, _Code]  # code that ends with an action for a call, by the call's name


def reachable_calls(level: str) -> set[str]:
    """Return the names of the calls that programs can make, some with few arguments only.

    Args:
        level: A level with a filter, "namespaces" or "landlock".
    """
    calls = {*_ALLOWED, *CHANGES, *_ABOUT_PROCESSES, *_PRIORITIES, *_BY_ARGUMENTS}
    if level == "namespaces":
        calls.update(_INSIDE)
    calls.discard("clone3")
    if not SOCKETS[level]:
        calls.discard("socket")
    return calls


def call_number(name: str) -> int:
    """Return the number of a call of `CALLS` on this machine; -1 if it has no such call."""
    numbers = CALLS[name]
    number = numbers.x86_64 if _machine() == "x86_64" else numbers.aarch64
    return -1 if number is None else number


@functools.cache
def build_filter(level: str) -> bytes:
    """Build the first filter of a level, for `install`.

    Raises:
        NotImplementedError: There is no filter for this machine.
    """
    rules: _Rules = {name: [_return(_ALLOW)] for name in reachable_calls(level) | _ENTERING.keys()}
    for name in _ATTRIBUTES:
        rules[name] = [_return(_ERRNO | errno.EOPNOTSUPP)]
    for name in PAGES:
        # As on files that do not support it: `shutil`, `socket.sendfile` and the like then read
        # and write.
        rules[name] = [_return(_INVALID)]
    rules |= _process_rules()
    rules |= _memory_rules()
    rules |= _descriptor_rules()
    rules |= _socket_rules(level)
    return _assemble(rules, other=[_return(_DENY)], newer=[_return(_ABSENT)])


def _process_rules() -> _Rules:
    """Return the first filter's rules about processes and what they inherit.

    A rule names an argument of a call by its position, from 0.
    """
    # clone(flags, ...). Threads have to share their descriptors, and processes must not: else open
    # files and locks would hide from whoever counts them.
    clone_thread = _decide(argument=0, test=_ANY_BIT, values=[_CLONE_FILES], yes=_ALLOW, no=_DENY)
    clone_process = _decide(argument=0, test=_ANY_BIT, values=[_CLONE_FILES], yes=_DENY, no=_ALLOW)
    clone = [
        *_return_if(argument=0, test=_ANY_BIT, values=[_CLONE_REFUSED], action=_DENY),
        *_run_if(argument=0, test=_ANY_BIT, value=_CLONE_THREAD, code=clone_thread),
        *clone_process,
    ]
    # prlimit64(process, limit, new value, ...). A null pointer as new value only reads the limit.
    deny_new_value = _return_unless_null(argument=2, action=_DENY)
    prlimit = [
        *_run_if(argument=1, test=_EQUAL, value=_RLIMIT_LOCKS, code=deny_new_value),
        _return(_ALLOW),
    ]
    # prctl(option, value, ...). A process that cannot be dumped would hide its memory from whoever
    # measures it: the only value for that option is 1.
    set_dumpable = _decide(argument=1, test=_EQUAL, values=[1], yes=_ALLOW, no=_DENY)
    prctl = [
        *_run_if(argument=0, test=_EQUAL, value=linux.PR_SET_DUMPABLE, code=set_dumpable),
        *_decide(argument=0, test=_EQUAL, values=_PRCTLS, yes=_ALLOW, no=_DENY),
    ]
    return {
        "clone": clone,
        # Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
        "clone3": [_return(_ABSENT)],
        "prlimit64": prlimit,
        "setrlimit": _decide(argument=0, test=_EQUAL, values=[_RLIMIT_LOCKS], yes=_DENY, no=_ALLOW),
        "prctl": prctl,
        "personality": _decide(
            argument=0, test=_EQUAL, values=_PERSONALITIES, yes=_ALLOW, no=_DENY
        ),
    }


def _memory_rules() -> _Rules:
    """Return the first filter's rules about memory that would not be counted."""
    return {
        # mmap(address, length, protection, flags, ...)
        "mmap": _decide(
            argument=3,
            test=_ANY_BIT,
            values=[_MAP_HUGETLB],
            yes=_ERRNO | errno.ENOMEM,
            no=_ALLOW,
        ),
        # madvise(address, length, advice)
        "madvise": _decide(
            argument=2, test=_EQUAL, values=_REFUSED_ADVICE, yes=_INVALID, no=_ALLOW
        ),
    }


def _descriptor_rules() -> _Rules:
    """Return the first filter's rules about descriptors of any kind."""
    return {
        # close_range(first, last, flags). The flag would give a thread its own descriptors.
        "close_range": _decide(
            argument=2, test=_ANY_BIT, values=[_CLOSE_RANGE_UNSHARE], yes=_INVALID, no=_ALLOW
        ),
        # ioctl(descriptor, request, ...). Nothing in a sandbox is a terminal or a device; of the
        # other requests some change files that are open only for reading.
        "ioctl": _decide(
            argument=1, test=_EQUAL, values=_IOCTLS, yes=_ALLOW, no=_ERRNO | errno.ENOTTY
        ),
        # fcntl(descriptor, command, ...)
        "fcntl": [
            *_return_if(argument=1, test=_EQUAL, values=_OPEN_FILE_LOCKS, action=_INVALID),
            *_decide(argument=1, test=_EQUAL, values=_FCNTLS, yes=_ALLOW, no=_DENY),
        ],
    }


def _socket_rules(level: str) -> _Rules:
    """Return the first filter's rules about sockets."""
    has_network = bool(SOCKETS[level])
    # setsockopt(descriptor, level, option, ...). Refused are larger buffers than the memory limit
    # counts for a socket, and a socket that delays the process that closes it.
    deny_socket_options = _return_if(
        argument=2, test=_EQUAL, values=_REFUSED_SOCKET_OPTIONS, action=_DENY
    )
    deny_tcp_options = _return_if(argument=2, test=_EQUAL, values=[_TCP_ULP], action=_DENY)
    setsockopt = [
        *_run_if(argument=1, test=_EQUAL, value=_SOL_SOCKET, code=deny_socket_options),
        *_run_if(argument=1, test=_EQUAL, value=_SOL_TCP, code=deny_tcp_options),
        *_decide(argument=2, test=_EQUAL, values=_REFUSED_OPTIONS, yes=_DENY, no=_ALLOW),
    ]
    # socketpair(family, type, ...)
    datagram_action = _ALLOW if has_network else _DENY
    socketpair = [
        *_deny_unless_equal(argument=0, values=[socket.AF_UNIX]),
        *_decide(argument=1, test=_ANY_BIT, values=[_DATAGRAM_BIT], yes=datagram_action, no=_ALLOW),
    ]
    rules = {"setsockopt": setsockopt, "socketpair": socketpair}
    if has_network:
        # socket(family, type, protocol)
        rules["socket"] = [
            *_deny_unless_equal(argument=0, values=SOCKETS[level]),
            *_decide(argument=2, test=_EQUAL, values=_PROTOCOLS, yes=_ALLOW, no=_DENY),
        ]
    return rules


@functools.cache
def build_last_filter(level: str) -> bytes:
    """Build the second filter of a level, for `install` with a listener.

    The kernel applies it beside the first one; whatever it cannot decide, it asks the judge.
    """
    rules: _Rules = {name: [_return(_DENY)] for name in _ENTERING}
    for name in _ABOUT_PROCESSES:
        # Process 0 is the caller itself.
        rules[name] = _decide(argument=0, test=_EQUAL, values=[0], yes=_ALLOW, no=_ASK)
    for name in _PRIORITIES:
        # The first argument is 0 if the second is a process; else that is a whole group or user.
        rules[name] = [
            *_deny_unless_equal(argument=0, values=[0]),
            *_decide(argument=1, test=_EQUAL, values=[0], yes=_ALLOW, no=_ASK),
        ]
    rules["setsid"] = [_return(_ASK)]
    if level == "landlock":
        for name in CHANGES:
            rules[name] = [_return(_ASK)]
    if SOCKETS[level]:
        # Before a program gets a socket of the internet, the judge brings up the local network.
        internet = (socket.AF_INET, socket.AF_INET6)
        rules["socket"] = _decide(argument=0, test=_EQUAL, values=internet, yes=_ASK, no=_ALLOW)
    return _assemble(rules, other=[_return(_ALLOW)], newer=[_return(_ALLOW)])


def install(program: bytes, *, listening: bool = False) -> int:
    """Bind every thread of this process, and all its descendants, to a filter.

    They can no longer gain privileges by running a program, as the kernel asks.

    Args:
        program: What `build_filter` or `build_last_filter` returns.
        listening: Whether the filter asks a judge; this process may then have only one thread.

    Returns:
        The descriptor of the filter's listener, for `judge`; 0 without `listening`.

    Raises:
        OSError: The kernel has no such filters or refuses this one.
    """
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    # The kernel returns a listener, or with TSYNC 0 or the first thread that it cannot bind.
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
    """Return struct sock_fprog, the number and address of a program's instructions of 8 bytes.

    The program must live as long as its address is used: this cache keeps it, as its key.
    """
    address = ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value
    return struct.pack("@HP", len(program) // 8, address)


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
        newer: Code for calls with a higher number.
    """
    # First kill whoever calls by the conventions of another machine, where numbers differ, and
    # load the number of the call.
    program = [
        _load(_ARCHITECTURE),
        Instruction(_EQUAL, 1, 0, _ARCHITECTURES[_machine()]),
        _return(_KILL),
        _load(_NUMBER),
    ]
    if _machine() == "x86_64":
        program += [Instruction(_AT_LEAST, 0, 1, _X32_BIT), _return(_KILL)]

    code_by_number = {call_number(name): code for name, code in rules.items()}
    ranges: list[CallRange] = []
    for number in range(NEWEST + 1):
        code = code_by_number.get(number, other)
        if not ranges or code != ranges[-1].code:
            ranges.append(CallRange(number, code))
    if newer != ranges[-1].code:
        ranges.append(CallRange(NEWEST + 1, newer))
    program += _binary_search(ranges)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _binary_search(ranges: list[CallRange]) -> _Code:
    """Return code that finds the range of the number in the register and runs the code of that.

    By halving, as the kernel runs a filter at every call.
    """
    if len(ranges) == 1:
        return ranges[0].code
    middle = len(ranges) // 2
    lower = _binary_search(ranges[:middle])
    upper = _binary_search(ranges[middle:])
    # A test can skip at most 255 instructions: to reach the upper half, it runs into a jump.
    return [
        Instruction(_AT_LEAST, 0, 1, ranges[middle].first),
        Instruction(_JUMP, 0, 0, len(lower)),
        *lower,
        *upper,
    ]


def _decide(argument: int, test: int, values: Sequence[int], *, yes: int, no: int) -> _Code:
    """Return code that ends with `yes` if the test holds for an argument and any value, else `no`.

    Args:
        argument: Position of the argument, 0 to 5. Only its low 32 bits are tested, since the
            kernel reads no more of these arguments.
        test: `_EQUAL` or `_ANY_BIT`.
        values: What the argument is tested with.
        yes: An action.
        no: An action.
    """
    return [*_skip_next_if(argument, test, values), _return(no), _return(yes)]


def _deny_unless_equal(argument: int, values: Sequence[int]) -> _Code:
    """Return code that refuses a call unless an argument is one of the values."""
    return [*_skip_next_if(argument, _EQUAL, values), _return(_DENY)]


def _return_if(argument: int, test: int, values: Sequence[int], action: int) -> _Code:
    """Return code that ends with an action if the test holds for an argument and any value."""
    return [
        *_skip_next_if(argument, test, values),
        Instruction(_JUMP, 0, 0, 1),
        _return(action),
    ]


def _skip_next_if(argument: int, test: int, values: Sequence[int]) -> _Code:
    """Return code that skips the instruction after it if the test holds for any of the values."""
    code = [_load(_ARGUMENTS + 8 * argument)]
    for position, value in enumerate(values):
        tests_after = len(values) - position - 1
        code.append(Instruction(test, tests_after + 1, 0, value))
    return code


def _run_if(argument: int, test: int, value: int, code: _Code) -> _Code:
    """Return code that runs other code only if the test holds for an argument and a value."""
    return [_load(_ARGUMENTS + 8 * argument), Instruction(test, 0, len(code), value), *code]


def _return_unless_null(argument: int, action: int) -> _Code:
    """Return code that ends with an action unless an argument, a pointer of 64 bits, is null."""
    return [
        _load(_ARGUMENTS + 8 * argument),
        Instruction(_EQUAL, 0, 2, 0),
        _load(_ARGUMENTS + 8 * argument + 4),
        Instruction(_EQUAL, 1, 0, 0),
        _return(action),
    ]


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _return(action: int) -> Instruction:
    return Instruction(_RETURN, 0, 0, action)


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
    """Answer the questions of a filter until no process is left that may ask.

    A call that names another process goes on if that process is in the caller's session, or in one
    that was begun in it: to a session, its forks and what they start do not exist. Modes and times
    of files the judge changes itself, since the path that a program gives may be another by the
    time the kernel reads it.

    Args:
        listener: What `install` returned for the filter.
        folder: The only folder in which files may be changed, a path without links.
        network: The network of the boundary, which is started when a program asks for its first
            socket of the internet's families.
    """
    call_judge = CallJudge(folder, network)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        [(_, events)] = poll.poll()
        if events & select.POLLHUP:  # no process with the filter is left
            return
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE_QUESTION, question)
            question_id, asker, _, number, _, _, *arguments = _QUESTION.unpack(question)
            ruling = call_judge.decide(asker, number, arguments)
            answer = _ANSWER.pack(question_id, 0, -ruling.error, ruling.flags)
            fcntl.ioctl(listener, _SEND_ANSWER, answer)
        except OSError:
            continue  # the asker has ended, or does not wait any more


class Ruling(NamedTuple):
    """What becomes of a call: an error, 0 for none, and `_CONTINUE` or 0."""

    error: int
    flags: int


_CARRY_OUT = Ruling(0, _CONTINUE)
_DONE = Ruling(0, 0)  # the judge has carried it out


class FileChange(NamedTuple):
    """A call that changes the mode or the times of a file."""

    folder: int  # descriptor of the asker, below which the path is, or _AT_FDCWD
    path: int  # address of the path in the asker's memory; 0 if `folder` itself is to be changed
    value: int  # the mode, or the address of the times
    flags: int


class CallJudge:
    """The rules of `judge`, which describes the arguments."""

    def __init__(self, folder: str | None, network: LocalNetwork | None) -> None:
        self.folder = folder
        self.network = network
        # By session, those in which it was begun, the nearest first. A session is named by the pid
        # of the process that began it.
        self.outer_sessions: dict[int, tuple[int, ...]] = {}

    def decide(self, asker: int, number: int, arguments: list[int]) -> Ruling:
        """Decide about a call.

        Args:
            asker: The pid of the process that makes the call.
            number: The number of the call on this machine.
            arguments: Its six arguments as registers of 64 bits.
        """
        name = _names_by_number()[number]
        if name in CHANGES:
            try:
                self._change_file(asker, name, arguments)
            except OSError as error:
                return Ruling(error.errno or errno.EPERM, 0)
            # Addresses or times that cannot be, or that are mapped only in part.
            except (OverflowError, ValueError, struct.error):
                return Ruling(errno.EFAULT, 0)
            return _DONE
        if name == "socket":
            if self.network:
                self.network.start()
            return _CARRY_OUT
        session = os.getsid(asker)
        if name == "setsid":
            self._note_new_session(asker, session, is_separate=arguments[0] == _BEGIN_SESSION)
            return _CARRY_OUT
        # All other calls name a process.
        pid_argument = arguments[1] if name in _PRIORITIES else arguments[0]
        named_process = _signed_32_bit(pid_argument)
        if not self._is_in_session(named_process, session):
            return Ruling(errno.ESRCH, 0)
        return _CARRY_OUT

    def _note_new_session(self, asker: int, session: int, *, is_separate: bool) -> None:
        """Note that a process begins a session, which from now on has that process's number."""
        if is_separate:
            self.outer_sessions.pop(asker, None)
        elif asker != session:  # else the kernel refuses: it has begun its session already
            outer = (session, *self.outer_sessions.get(session, ()))
            self.outer_sessions[asker] = outer[:_MAX_OUTER_SESSIONS]

    def _is_in_session(self, pid: int, session: int) -> bool:
        """Return whether a process is in a session or in one begun in it; -5 is process group 5."""
        try:
            its_session = os.getsid(abs(pid))
        except (OSError, OverflowError):
            return False
        return session == its_session or session in self.outer_sessions.get(its_session, ())

    def _change_file(self, asker: int, name: str, arguments: list[int]) -> None:
        """Change the mode or the times of a file for the process that asks.

        Raises:
            OSError: As the kernel would give it; PermissionError outside of the folder.
        """
        change = _parse_change(name, arguments)
        target = _open_target(asker, change)
        try:
            # Checked and changed by descriptor: the path may meanwhile lead elsewhere.
            target_path = Path(f"/proc/self/fd/{target}")
            if self.folder is None or not str(target_path.readlink()).startswith(f"{self.folder}/"):
                raise PermissionError(errno.EPERM, "it lies elsewhere")
            if name == "utimensat":
                _set_times(target_path, asker, change.value)
            else:
                target_path.chmod(change.value & 0o777)
        finally:
            os.close(target)


def _parse_change(name: str, arguments: list[int]) -> FileChange:
    """Return what a call of `CHANGES` asks for."""
    if name == "chmod":
        path, mode = arguments[:2]
        return FileChange(_AT_FDCWD, path, mode, flags=0)
    folder = _signed_32_bit(arguments[0])
    if name == "fchmod":
        return FileChange(folder, path=0, value=arguments[1], flags=0)
    # Of the others, `fchmodat` has no flags.
    flags = 0 if name == "fchmodat" else _signed_32_bit(arguments[3])
    return FileChange(folder, path=arguments[1], value=arguments[2], flags=flags)


def _open_target(asker: int, change: FileChange) -> int:
    """Return a descriptor, without access to its contents, of the file that is to be changed."""
    folder = "cwd" if change.folder == _AT_FDCWD else f"fd/{change.folder}"
    target_path = Path(f"/proc/{asker}", folder)
    open_flags = os.O_PATH | os.O_CLOEXEC
    if change.path:
        path, _, _ = _read_memory(asker, change.path, _MAX_PATH).partition(b"\0")
        target_path /= os.fsdecode(path)
        if change.flags & _AT_SYMLINK_NOFOLLOW:
            open_flags |= os.O_NOFOLLOW
    return os.open(target_path, open_flags)


def _set_times(path: Path, asker: int, times_address: int) -> None:
    """Set a file's access and modification times as `utimensat` does.

    Args:
        path: The file.
        asker: The pid of the process that asks.
        times_address: Where its memory has two struct timespec; 0 sets both times to now.
    """
    if not times_address:
        os.utime(path)
        return
    status = path.stat()
    now = time.time_ns()
    times = _TIMES.unpack(_read_memory(asker, times_address, _TIMES.size))
    access_seconds, access_nanoseconds, modified_seconds, modified_nanoseconds = times
    accessed = _time_to_set(access_seconds, access_nanoseconds, now=now, current=status.st_atime_ns)
    modified = _time_to_set(
        modified_seconds, modified_nanoseconds, now=now, current=status.st_mtime_ns
    )
    os.utime(path, ns=(accessed, modified))


def _time_to_set(seconds: int, nanoseconds: int, *, now: int, current: int) -> int:
    """Return the nanoseconds since 1970 that a struct timespec stands for in `utimensat`."""
    if nanoseconds == _UTIME_NOW:
        return now
    if nanoseconds == _UTIME_OMIT:
        return current
    return seconds * 10**9 + nanoseconds


@functools.cache
def _names_by_number() -> dict[int, str]:
    return {call_number(name): name for name in CALLS}


def _read_memory(pid: int, address: int, size: int) -> bytes:
    """Read the memory of a process; fewer bytes than `size` if what follows is not mapped."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)


def _signed_32_bit(register: int) -> int:
    """Return the number that the kernel reads from a register as an int: `2**32 - 1` -> -1."""
    return ctypes.c_int(register & 0xFFFFFFFF).value
