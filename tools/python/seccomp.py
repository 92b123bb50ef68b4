"""A filter on system calls: what opens the kernel's rarer doors is refused, everything else is allowed.

A filter is built once, as bytes, and installed in a process that it binds for good with all its descendants: in a child
after its fork, or in a server whose forks then have it for nothing. A refused call fails with EPERM; the calling
conventions of other machines kill the process.

Sources: Linux's `linux/seccomp.h`, `linux/bpf_common.h`, and the calls' numbers in `asm/unistd_64.h` (x86_64) and
`asm-generic/unistd.h` (aarch64).
"""

import ctypes
import errno
import functools
import os
import socket
import struct
from collections.abc import Sequence

from . import linux

_Code = list[tuple[int, int, int, int]]  # instructions of classic BPF: operation, jump if true, jump if false, operand
_Rules = dict[str, _Code]  # what answers a call, by its name

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGS = 0, 4, 16  # offsets into struct seccomp_data, whose six arguments have 8 bytes each

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_DENY = _ERRNO | errno.EPERM
_ABSENT = _ERRNO | errno.ENOSYS

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_X32 = 0x40000000  # set in the numbers of x86_64's x32 calls

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _TSYNC = 1, 1

# Every CLONE_NEW* flag that clone takes, and CLONE_PARENT: a sibling of its maker would be the server's to reap.
_CLONE_DENIED = 0x7E020000 | 0x8000
_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP = 0x5412, 0x541C, 0x8901, 0x8902
_F_SETOWN, _F_SETOWN_EX = 8, 15
_PERSONALITIES = (0, 0xFFFFFFFF)  # Linux's own, and the query

# Numbers on x86_64 and aarch64; None where the machine has no such call.
_Numbers = dict[str, tuple[int, int | None]]
_DENIED: _Numbers = {
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "setns": (308, 268), "unshare": (272, 97),
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    # large attack surfaces
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory that no process's size shows, and objects that outlive their process
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "sethostname": (170, 161), "setdomainname": (171, 162),
    "syslog": (103, 116), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42),
    # files behind the back of path checks
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
}  # fmt: skip
_JUDGED: _Numbers = {
    "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "personality": (135, 92),
    "socket": (41, 198), "socketpair": (53, 199),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "fcntl": (72, 25), "prlimit64": (302, 261),
}  # fmt: skip


def build_filter(*, network: bool, own_signals_only: bool = False, joining: bool = False) -> bytes:
    """Return the program for this machine, for `install`.

    Without `network` there are no sockets but those of AF_UNIX. With `own_signals_only`, for where no pid namespace
    contains them, signals reach only the process that calls this, so it is to be called in the child; the child's own
    children get none either. `joining` allows setns, for a server whose forks have yet to join their namespaces; it
    takes a privilege that they then give up. Raises NotImplementedError on a machine other than x86_64 and aarch64.
    """
    machine = _machine()
    own = _pack(_own_signals(machine, os.getpid())) if own_signals_only else b""
    return _head(machine) + own + _tail(machine, network, joining)


def install(program: bytes) -> None:
    """Bind every thread of this process, and all its descendants, to the filter; they gain no privileges by exec.

    Raises OSError where the kernel has no such filters or refuses this one.
    """
    linux.no_new_privs()
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    refused = "the kernel refuses a seccomp filter (it needs CONFIG_SECCOMP_FILTER and a sound program)"
    failed = linux.syscall(refused, _SECCOMP[_machine()], _SET_MODE_FILTER, _TSYNC, head)
    if failed:
        raise OSError(errno.EBUSY, f"thread {failed} has a seccomp filter of its own: install before it gets one")


@functools.cache
def _head(machine: str) -> bytes:
    """Kill strangers, and leave the call's number in the register."""
    code = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _ARCHES[machine]), _answer(_KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), _answer(_KILL)]
    return _pack(code)


def _own_signals(machine: str, pid: int) -> _Code:
    by_pid = _judge(0, _EQUAL, [pid], yes=_ALLOW, no=_DENY)
    names = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open")
    rules = dict.fromkeys(names, by_pid) | {
        # A descriptor does not tell whose it is.
        "pidfd_send_signal": [_answer(_DENY)],
        # The other ways to have a process killed: as the owner of a descriptor, and by its limit of CPU time.
        "fcntl": _judge(1, _EQUAL, [_F_SETOWN, _F_SETOWN_EX], yes=_DENY, no=_ALLOW),
        "prlimit64": _judge(0, _EQUAL, [0, pid], yes=_ALLOW, no=_DENY),
    }
    return [step for number, body in _numbered(machine, rules) for step in _on(number, body)]


@functools.cache
def _tail(machine: str, network: bool, joining: bool) -> bytes:
    rules: _Rules = {name: [_answer(_DENY)] for name in _DENIED if not (joining and name == "setns")}
    # Its flags lie in memory, where a filter cannot look; the C library falls back to clone.
    rules["clone3"] = [_answer(_ABSENT)]
    rules["clone"] = _judge(0, _ANY_BIT, [_CLONE_DENIED], yes=_DENY, no=_ALLOW)
    # Keys typed into a terminal, and signals to the owner of a descriptor.
    rules["ioctl"] = _judge(1, _EQUAL, [_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP], yes=_DENY, no=_ALLOW)
    rules["personality"] = _judge(0, _EQUAL, _PERSONALITIES, yes=_ALLOW, no=_DENY)
    if not network:
        only_unix = _judge(0, _EQUAL, [socket.AF_UNIX], yes=_ALLOW, no=_DENY)
        rules |= {"socket": only_unix, "socketpair": only_unix}
    return _pack(_search(_numbered(machine, rules)))


def _numbered(machine: str, rules: _Rules) -> list[tuple[int, _Code]]:
    """Return the rules by the number of their call, in order, less those for calls that the machine has not."""
    column = list(_ARCHES).index(machine)
    rows = (((_DENIED | _JUDGED)[name][column], body) for name, body in rules.items())
    return sorted((number, body) for number, body in rows if number is not None)


def _search(rules: list[tuple[int, _Code]]) -> _Code:
    """Find the call's rule by halving, else allow it: the kernel runs a new filter for every call there is."""
    if len(rules) <= 4:
        return [step for number, body in rules for step in _on(number, body)] + [_answer(_ALLOW)]
    middle = len(rules) // 2
    low, high = _search(rules[:middle]), _search(rules[middle:])
    return [(_AT_LEAST, 0, 1, rules[middle][0]), (_JUMP, 0, 0, len(low)), *low, *high]


def _on(number: int, body: _Code) -> _Code:
    """Run the body, which ends in an answer, for this call."""
    return [(_EQUAL, 0, len(body), number), *body]


def _judge(arg: int, test: int, values: Sequence[int], *, yes: int, no: int) -> _Code:
    """Answer `yes` if the test holds for a value, else `no`; by the low 32 bits, as these calls read no more."""
    tests = [(test, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [(_LOAD, 0, 0, _ARGS + 8 * arg), *tests, _answer(no), _answer(yes)]


def _answer(action: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, action


def _pack(code: _Code) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _machine() -> str:
    machine = os.uname().machine
    if machine not in _ARCHES or struct.calcsize("P") != 8:
        raise NotImplementedError(
            f"no seccomp filter for a {8 * struct.calcsize('P')}-bit Python on {machine!r}: "
            f"there are 64-bit ones for {', '.join(_ARCHES)}"
        )
    return machine
