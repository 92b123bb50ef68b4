"""What can be reached from inside, call by call and family by family, beside what is declared of a level."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

from turngym.tests.verify.rows import Row, first
from turngym.tests.verify.sandbox.trial import PythonRunner
from turngym.tools import Status
from turngym.tools.python.isolation import seccomp

LAST = 520  # numbers of calls that are tried: some more than there are
FAMILIES = 64
PROBES = {
    335,
    336,
}  # no filter sees uretprobe and uprobe of x86_64, which work in code of the kernel's own only
# Arguments with which a call does no harm; all others get -1, which no call takes for a pointer, a file or a process.
_HARMLESS = {
    "clone": (17,),  # SIGCHLD
    "prctl": (3,),
    "personality": (0xFFFFFFFF,),
    "ioctl": (0, 0x541B),
    "fcntl": (0, 1),
    "socket": (1, 1, 0),
    "socketpair": (1, 1, 0, -1),
    "futex": (0, 1, 0),
    "getpriority": (0, 0),
    "setpriority": (0, 0, 0),
}
_PROGRAM = """
import ctypes, errno, json, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)
def call(number, given):
    ctypes.set_errno(0)
    given = [ctypes.c_long(value) for value in [*given, *[-1] * 6][:6]]
    return 0 if libc.syscall(ctypes.c_long(number), *given) >= 0 else ctypes.get_errno()
def answer(number, given):
    child = os.fork()
    if not child:
        os.dup2(0, 2)  # what a child says that comes to harm
        signal.setitimer(signal.ITIMER_REAL, 0.3)  # some wait for ever
        os._exit(call(number, given))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code in REFUSED or (number in {pages} and code == errno.EINVAL) else 0
given = {given}
answers = {{}}
for number in range({last}):
    answers.setdefault(answer(number, given.get(number, ())), []).append(number)
def opens(make, family, kind):
    try:
        made = make(family, kind, 0)
    except OSError:
        return False
    for end in made if isinstance(made, tuple) else (made,): end.close()
    return True
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
families = [[family for family in range({families}) if any(opens(make, family, kind) for kind in kinds)]
            for make in (socket.socket, socket.socketpair)]
print(json.dumps([answers, families], separators=(",", ":")))
"""


def reach_rows(tool: PythonRunner, level: str) -> Iterator[Row]:
    """Count the calls and the families that are refused where they are not declared, and not where they are.

    Raises:
        ValueError: The program that tries them did not come to its end.
    """
    names = {number: name for name in seccomp.CALLS if (number := seccomp.call_number(name)) >= 0}
    declared = {number for number, name in names.items() if name in seccomp.reachable_calls(level)}
    given = {number: _HARMLESS[name] for number, name in names.items() if name in _HARMLESS}
    pages = {
        seccomp.call_number(name) for name in seccomp.PAGE_TRANSFERS
    }  # refused as on files that do not support it
    result = tool.call(
        {"code": _PROGRAM.format(given=given, pages=pages, last=LAST, families=FAMILIES)}
    )
    if result.status is not Status.OK:
        raise ValueError(
            f"the program that tries system calls gave {result.status}: {result.text[-300:]}"
        )
    answers, (sockets, pairs) = json.loads(result.text)
    reached = {*answers["0"]} - PROBES
    kept = {*answers.get("1", ()), *answers.get("95", ())}  # one that the kernel lacks is neither
    wrong = sorted((reached - declared) | (declared & kept))
    note = f"{len(reached)} reached" + (
        f"; wrong: {first([names.get(n, str(n)) for n in wrong])}" if wrong else ""
    )
    yield Row(
        f"system calls at {level} are reached or refused as declared", LAST - len(wrong), LAST, note
    )
    right = sum((f in sockets) == (f in seccomp.SOCKET_FAMILIES[level]) for f in range(FAMILIES))
    right += sum((f in pairs) == (f == socket.AF_UNIX) for f in range(FAMILIES))
    yield Row(
        f"socket families at {level}, too", right, 2 * FAMILIES, f"sockets {sockets}, pairs {pairs}"
    )
