"""Filters on system calls: what is listed here can be reached, and nothing else.

The filter of a level is built once, as bytes, and binds a process for good with all its descendants. A call that is not
listed fails with EPERM, one that is newer than the list with ENOSYS, as on an older kernel, and one of another
machine's calling conventions kills the process. A second filter, of every worker, asks the `judge` about calls that
name a process and, where the files of the machine are seen, about those that change a file's mode or times.

Sources: Linux's `linux/seccomp.h`, `linux/bpf_common.h`, `asm/unistd_64.h` (x86_64), `asm-generic/unistd.h` (aarch64).
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
from itertools import groupby
from pathlib import Path

from . import linux
from .network import LocalNetwork

_Code = list[
    tuple[int, int, int, int]
]  # instructions of classic BPF: operation, jump if true, jump if false, operand
_Rules = dict[str, _Code]  # what answers a call, by its name
_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGS = (
    0,
    4,
    16,
)  # offsets into struct seccomp_data, whose six arguments have 8 bytes each
_ALLOW, _KILL, _ASK, _ERRNO = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x00050000
_DENY, _ABSENT, _INVALID = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ERRNO | errno.EINVAL
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_X32 = 0x40000000  # set in the numbers of x86_64's x32 calls
_SET_MODE_FILTER, _TSYNC, _NEW_LISTENER = 1, 1, 8
OWN = int.from_bytes(b"held own")
"""What `setsid` is given, which the kernel does not read, by a process that the judge is to hold apart."""

SOCKETS = {
    "namespaces": (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK),
    "landlock": (),
}
"""The families of `socket` at each level; `socketpair` makes AF_UNIX ones at all."""
_PROTOCOLS = (0, socket.IPPROTO_TCP, socket.IPPROTO_UDP)
_DATAGRAM = 2  # the bit of SOCK_DGRAM and SOCK_RAW: a pair of these can still send to any address

# Every CLONE_NEW* flag that clone takes, and CLONE_PARENT: a sibling of its maker would be the server's to reap.
_CLONE_DENIED = 0x7E020000 | 0x8000
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
_CLOSE_RANGE_UNSHARE = 2
_SOCKOPTS_DENIED = (7, 8, 13)  # SO_SNDBUF, SO_RCVBUF, SO_LINGER
_SOL_SOCKET, _SOL_TCP = 1, 6
_BUFFERS = (
    32,
    33,
    60,
    73,
)  # of SOL_SOCKET: SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ZEROCOPY, SO_RESERVE_MEM
_TCP_ULP = 31  # would put code of the kernel between a connection and its program, such as TLS
_MAP_HUGETLB = (
    0x40000  # pages of a pool of the machine, which no figure of a process counts as its memory
)
_ADVICE_DENIED = (
    20,
    21,
)  # MADV_COLD, MADV_PAGEOUT: memory that a program has moved to swap does not count as held
_RLIMIT_LOCKS = 10  # has no effect of its own: it carries the mark of a server (`guard`)
_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux's own, and the query
# FIOCLEX, FIONCLEX, FIONREAD, FIONBIO, FICLONE, SIOCGIFNAME, SIOCGIFINDEX
_IOCTLS = (0x5451, 0x5450, 0x541B, 0x5421, 0x40049409, 0x8910, 0x8933)
# Duplicates, flags and locks; not owners, leases, notices, or pipes larger than others.
_FCNTLS = (*range(8), 9, 11, 1025, 1030, 1032, 1034)
# F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW: these locks belong to no process, so that nobody could count them.
_OPEN_FILE_LOCKS = (36, 37, 38)
# Death signal, names, timer slack, subreapers, privileges that stay away, large pages, names of memory.
_PRCTLS = (1, 2, 3, 15, 16, 21, 23, 29, 30, 36, 37, 38, 39, 41, 42, 0x53564D41)

# Calls by table, each with its numbers on x86_64 and aarch64; the file has `-` where a machine has no such call.
_TABLES: dict[str, dict[str, tuple[int, int | None]]] = {
    table: {
        name: (int(x86_64), None if aarch64 == "-" else int(aarch64))
        for name, x86_64, aarch64 in map(str.split, ",".join(lines).split(","))
    }
    for table, lines in json.loads(Path(__file__).with_name("calls.json").read_text()).items()
}
_ALLOWED = _TABLES["allowed"]
_INSIDE = _TABLES[
    "inside"
]  # would reach what lies outside, where no file tree and no network of its own prevent it
CHANGES = _TABLES[
    "changes"
]  # of files, which the judge makes itself at level `landlock`, in the session's folder
_ENTERING = _TABLES["entering"]  # needed on the way in; the second filter refuses them
_ABOUT_PROCESSES = _TABLES["about_processes"]  # name a process by their first argument
_PRIORITIES = _TABLES["priorities"]  # by the second, where the first is 0
_ATTRIBUTES = _TABLES[
    "attributes"
]  # fail as on a file system without extended ones, as those who copy files expect
PAGES = _TABLES["pages"]  # hand pages of files to sockets and pipes, where nothing counts them
_JUDGED = _TABLES["judged"]
CALLS = {name: numbers for table in _TABLES.values() for name, numbers in table.items()}
NEWEST = 469  # the newest call that is known here: file_setattr, of Linux 6.17


def reached(level: str) -> set[str]:
    """Return the names of the calls that a program can make at a level with a filter, some with few arguments only."""
    inside = _INSIDE if level == "namespaces" else {}
    refused = {"clone3"} if SOCKETS[level] else {"clone3", "socket"}
    return {*_ALLOWED, *inside, *CHANGES, *_ABOUT_PROCESSES, *_PRIORITIES, *_JUDGED} - refused


def number(name: str) -> int:
    """Return the number of a call of `CALLS` on this machine; -1 where it has no such call."""
    found = CALLS[name][list(_ARCHES).index(_machine())]
    return -1 if found is None else found


@functools.cache
def build_filter(level: str) -> bytes:
    """Return the first filter of a level, for `install`; raises NotImplementedError where the machine has none."""
    rules: _Rules = {name: [_answer(_ALLOW)] for name in reached(level) | _ENTERING.keys()}
    rules |= {name: [_answer(_ERRNO | errno.EOPNOTSUPP)] for name in _ATTRIBUTES}
    # As on files that do not support it: `shutil`, `socket.sendfile` and the like then read and write.
    rules |= {name: [_answer(_INVALID)] for name in PAGES}
    # Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
    rules["clone3"] = [_answer(_ABSENT)]
    # Threads share their open files, and processes do not: else files and locks would hide from who counts them.
    files = _judge(0, _ANY_BIT, [_CLONE_FILES], yes=_ALLOW, no=_DENY)
    no_files = _judge(0, _ANY_BIT, [_CLONE_FILES], yes=_DENY, no=_ALLOW)
    clone = [*_where(0, _ANY_BIT, _CLONE_THREAD, files), *no_files]
    rules["clone"] = [*_refuse(0, _ANY_BIT, [_CLONE_DENIED], _DENY), *clone]
    rules["close_range"] = _judge(2, _ANY_BIT, [_CLOSE_RANGE_UNSHARE], yes=_INVALID, no=_ALLOW)
    rules["mmap"] = _judge(3, _ANY_BIT, [_MAP_HUGETLB], yes=_ERRNO | errno.ENOMEM, no=_ALLOW)
    rules["madvise"] = _judge(2, _EQUAL, _ADVICE_DENIED, yes=_INVALID, no=_ALLOW)
    rules["setrlimit"] = _judge(0, _EQUAL, [_RLIMIT_LOCKS], yes=_DENY, no=_ALLOW)
    rules["prlimit64"] = [*_where(1, _EQUAL, _RLIMIT_LOCKS, _if_given(2, _DENY)), _answer(_ALLOW)]
    # Nothing here is a terminal or a device; what else there is changes files that are only open for reading.
    rules["ioctl"] = _judge(1, _EQUAL, _IOCTLS, yes=_ALLOW, no=_ERRNO | errno.ENOTTY)
    rules["fcntl"] = _judge(1, _EQUAL, _FCNTLS, yes=_ALLOW, no=_DENY)
    rules["fcntl"] = [*_refuse(1, _EQUAL, _OPEN_FILE_LOCKS, _INVALID), *rules["fcntl"]]
    # A process that cannot be dumped would hide its memory from whoever measures it.
    dumpable = [
        (_EQUAL, 0, 4, linux.PR_SET_DUMPABLE),
        *_judge(1, _EQUAL, [1], yes=_ALLOW, no=_DENY),
    ]
    rules["prctl"] = [
        (_LOAD, 0, 0, _ARGS),
        *dumpable,
        *_judge(0, _EQUAL, _PRCTLS, yes=_ALLOW, no=_DENY),
    ]
    # Larger buffers than memory is counted with, and a socket that holds up whoever closes it.
    options = _judge(2, _EQUAL, _SOCKOPTS_DENIED, yes=_DENY, no=_ALLOW)
    of_sockets = _where(1, _EQUAL, _SOL_SOCKET, _refuse(2, _EQUAL, _BUFFERS, _DENY))
    of_tcp = _where(1, _EQUAL, _SOL_TCP, _refuse(2, _EQUAL, [_TCP_ULP], _DENY))
    rules["setsockopt"] = [*of_sockets, *of_tcp, *options]
    rules["personality"] = _judge(0, _EQUAL, _PERSONALITIES, yes=_ALLOW, no=_DENY)
    if families := SOCKETS[level]:
        protocol = _judge(2, _EQUAL, _PROTOCOLS, yes=_ALLOW, no=_DENY)
        rules["socket"] = [*_unless(0, families), *protocol]
    datagrams = _judge(1, _ANY_BIT, [_DATAGRAM], yes=_ALLOW if families else _DENY, no=_ALLOW)
    rules["socketpair"] = [*_unless(0, [socket.AF_UNIX]), *datagrams]
    return _build(rules, [_answer(_DENY)], [_answer(_ABSENT)])


@functools.cache
def build_last_filter(level: str) -> bytes:
    """Return the second filter, for `install` with a listener: what it cannot decide is the judge's."""
    rules: _Rules = {name: [_answer(_DENY)] for name in _ENTERING}
    rules |= {name: _judge(0, _EQUAL, [0], yes=_ALLOW, no=_ASK) for name in _ABOUT_PROCESSES}
    rules |= {
        name: [*_unless(0, [0]), *_judge(1, _EQUAL, [0], yes=_ALLOW, no=_ASK)]
        for name in _PRIORITIES
    }
    rules |= {
        name: [_answer(_ASK)] for name in ("setsid", *(CHANGES if level == "landlock" else ()))
    }
    if SOCKETS[level]:  # whoever asks for a socket of the network is given a network first
        rules["socket"] = _judge(0, _EQUAL, (socket.AF_INET, socket.AF_INET6), yes=_ASK, no=_ALLOW)
    return _build(rules, [_answer(_ALLOW)], [_answer(_ALLOW)])


def install(program: bytes, *, listening: bool = False) -> int:
    """Bind every thread of this process, and all its descendants, to the filter; they gain no privileges by exec.

    With `listening`, of a process with one thread, return the descriptor for the judge, else 0. Raises OSError where
    the kernel has no such filters or refuses this one.
    """
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)  # as the kernel asks
    refused = (
        "the kernel refuses a seccomp filter (it needs CONFIG_SECCOMP_FILTER and a sound program)"
    )
    flag = _NEW_LISTENER if listening else _TSYNC
    result = linux.syscall(refused, number("seccomp"), _SET_MODE_FILTER, flag, sock_fprog(program))
    if result and not listening:
        raise OSError(
            errno.EBUSY,
            f"thread {result} has a seccomp filter of its own: install before it gets one",
        )
    return result


@functools.cache
def sock_fprog(program: bytes) -> bytes:
    """Return the kernel's struct of this name for a program, which lives on as the key of this cache."""
    address = ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value
    return struct.pack("@HP", len(program) // 8, address)


def begin_session() -> None:
    """Be a session of one's own, which the judge holds apart from the one that this process comes from."""
    linux.syscall("setsid", number("setsid"), ctypes.c_ulong(OWN))


def _build(rules: _Rules, other: _Code, newer: _Code) -> bytes:
    """Return the program that answers calls by the rules, and all others up to the newest one in one way."""
    # Kill strangers, and leave the call's number in the register.
    head = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _ARCHES[_machine()]),
        _answer(_KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if _machine() == "x86_64":
        head += [(_AT_LEAST, 0, 1, _X32), _answer(_KILL)]
    numbered = {number(name): body for name, body in rules.items()}
    bodies = [numbered.get(call, other) for call in range(NEWEST + 1)] + [newer]
    runs = [(next(run)[0], body) for body, run in groupby(enumerate(bodies), lambda pair: pair[1])]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in head + _search(runs))


def _search(runs: list[tuple[int, _Code]]) -> _Code:
    """Find by halving the run of numbers that a call is in, and what answers it: the kernel looks for every call."""
    if len(runs) == 1:
        return runs[0][1]
    middle = len(runs) // 2
    low, high = _search(runs[:middle]), _search(runs[middle:])
    return [(_AT_LEAST, 0, 1, runs[middle][0]), (_JUMP, 0, 0, len(low)), *low, *high]


def _judge(arg: int, test: int, values: Sequence[int], *, yes: int, no: int) -> _Code:
    """Answer `yes` if the test holds for a value, else `no`; by the low 32 bits, as these calls read no more."""
    tests = [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGS + 8 * arg), *tests, _answer(no), _answer(yes)]


def _unless(arg: int, values: Sequence[int]) -> _Code:
    """Refuse a call whose argument is none of these, and go on with another."""
    return _judge(arg, _EQUAL, values, yes=_ALLOW, no=_DENY)[:-1]


def _refuse(arg: int, test: int, values: Sequence[int], answer: int) -> _Code:
    """Answer a call if the test holds for a value, and go on with another."""
    tests = [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGS + 8 * arg), *tests, (_JUMP, 0, 0, 1), _answer(answer)]


def _where(arg: int, test: int, value: int, then: _Code) -> _Code:
    """Go through some code if the test holds for an argument's value, else pass it over."""
    return [(_LOAD, 0, 0, _ARGS + 8 * arg), (test, 0, len(then), value), *then]


def _if_given(arg: int, answer: int) -> _Code:
    """Answer a call whose argument, a pointer of 64 bits, is not null, and go on with another."""
    halves = [
        (_LOAD, 0, 0, _ARGS + 8 * arg),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _ARGS + 8 * arg + 4),
        (_EQUAL, 1, 0, 0),
    ]
    return [*halves, _answer(answer)]


def _answer(action: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, action


def _machine() -> str:
    if (machine := os.uname().machine) not in _ARCHES or struct.calcsize("P") != 8:
        here = f"a {8 * struct.calcsize('P')}-bit Python on {machine!r}"
        raise NotImplementedError(
            f"no seccomp filter for {here}: there are 64-bit ones for {', '.join(_ARCHES)}"
        )
    return machine


_RECEIVE, _ANSWER, _CONTINUE = (
    0xC0502100,
    0xC0182101,
    1,
)  # SECCOMP_IOCTL_NOTIF_*, SECCOMP_USER_NOTIF_FLAG_CONTINUE
_NOTICE = struct.Struct(
    "=QII iIQ 6Q"
)  # struct seccomp_notif: id, pid, flags, and struct seccomp_data
_VERDICT = struct.Struct("=Qq iI")  # struct seccomp_notif_resp: id, value, error, flags
_REMEMBERED = 16  # sessions within sessions that are told apart
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_NOW, _OMIT = (1 << 30) - 1, (1 << 30) - 2
_PATH = 4096


def judge(listener: int, folder: str | None = None, network: LocalNetwork | None = None) -> None:
    """Answer until no process is left that may ask; `folder`, without links in it, is where files may be changed.

    The `network` of the boundary is started when a program asks for its first socket of the internet's families.

    Calls that name another process go on where that one is of the same session, or of one that was begun in it: to a
    session, its forks and what they start do not exist. Modes and times of files of the machine the judge changes
    itself, in their folder only: the path that a program gives may be another by the time the kernel reads it.
    """
    bench, poll = _Bench(folder, network), select.poll()
    poll.register(listener, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
            serial, asker, _, number, _, _, *args = _NOTICE.unpack(notice)
            error, flags = bench.decide(asker, number, args)
            fcntl.ioctl(listener, _ANSWER, _VERDICT.pack(serial, 0, -error, flags))
        except OSError:
            continue  # the asker has ended, or does not wait any more


class _Bench:
    def __init__(self, folder: str | None, network: LocalNetwork | None) -> None:
        self.folder, self.network = folder, network
        self.above: dict[int, tuple[int, ...]] = {}  # the sessions in which one was begun

    def decide(self, asker: int, number: int, args: list[int]) -> tuple[int, int]:
        """Return the error of a call, 0 for none, and whether the kernel is to go on with it."""
        if (name := _names()[number]) in CHANGES:
            try:
                self.change(asker, name, args)
            except OSError as error:
                return error.errno or errno.EPERM, 0
            except (OverflowError, ValueError):
                return errno.EFAULT, 0
            return 0, 0
        if name == "socket":
            if self.network:
                self.network.start()
            return 0, _CONTINUE
        own = os.getsid(asker)
        if name == "setsid" and args[0] == OWN:
            self.above.pop(asker, None)
        elif name == "setsid" and asker != own:
            self.above[asker] = (own, *self.above.get(own, ()))[:_REMEMBERED]
        elif name != "setsid" and not self.within(_int(args[name.endswith("priority")]), own):
            return errno.ESRCH, 0
        return 0, _CONTINUE

    def within(self, pid: int, session: int) -> bool:
        """Return whether a process, or a group where the number is negative, is of a session or one begun in it."""
        try:
            found = os.getsid(abs(pid))
        except (OSError, OverflowError):
            return False
        return session == found or session in self.above.get(found, ())

    def change(self, asker: int, name: str, args: list[int]) -> None:
        """Change the mode or the times of a file for the process that asks; OSError as the kernel would give it."""
        if name == "chmod":
            at, path, value, flags = _AT_FDCWD, args[0], args[1], 0
        elif name == "fchmod":
            at, path, value, flags = _int(args[0]), 0, args[1], 0
        else:
            at, path, value, flags = (
                _int(args[0]),
                args[1],
                args[2],
                0 if name == "fchmodat" else _int(args[3]),
            )
        place = Path(f"/proc/{asker}", "cwd" if at == _AT_FDCWD else f"fd/{at}")
        if path:
            place /= os.fsdecode(_read(asker, path, _PATH).partition(b"\0")[0])
        nofollow = os.O_NOFOLLOW if path and flags & _AT_SYMLINK_NOFOLLOW else 0
        target = os.open(place, os.O_PATH | os.O_CLOEXEC | nofollow)
        try:
            itself = Path(f"/proc/self/fd/{target}")
            if self.folder is None or not str(itself.readlink()).startswith(f"{self.folder}/"):
                raise PermissionError(errno.EPERM, "it lies elsewhere")
            if name != "utimensat":
                itself.chmod(value & 0o777)
            elif not value:
                os.utime(itself)
            else:
                status, now = itself.stat(), time.time_ns()
                seconds, nanos, *changed = struct.unpack("=4q", _read(asker, value, 32))
                times = ((seconds, nanos, status.st_atime_ns), (*changed, status.st_mtime_ns))
                accessed, modified = (
                    now if n == _NOW else old if n == _OMIT else s * 10**9 + n
                    for s, n, old in times
                )
                os.utime(itself, ns=(accessed, modified))
        finally:
            os.close(target)


@functools.cache
def _names() -> dict[int, str]:
    return {number(name): name for name in CALLS}


def _read(pid: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        return os.pread(memory.fileno(), size, address)


def _int(register: int) -> int:
    return ctypes.c_int(register & 0xFFFFFFFF).value
