"""A worker: the fork of a warm interpreter that confines itself, says that it is ready, and becomes a session."""

import contextlib
import fcntl
import gc
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from . import landlock, linux, packets, root, seccomp
from .forking import move
from .interpreter import Interpreter
from .limits import confine, open_files

_REHEARSALS = {
    "": "x = [i * i for i in range(9)]\nprint(sum(x), f'{x[1]:.2f}')\nlen(x)",
    "numpy": "import numpy as np\nprint(np.arange(4).sum(), np.linspace(0, 1, 3) @ np.ones(3))",
    "sympy": "import sympy as s\nx = s.symbols('x')\nprint(s.solve(2 * x**2 - 7 * x + 3, x))",
}


@dataclass(frozen=True)
class Order:
    """What a worker is to be.

    level: what confines it
    kind: the libraries with which it rehearses
    folder: where it works, a folder that it makes
    mapped: bytes of address space that it has from the start
    keeper: of level `namespaces`, a pidfd of the process whose namespaces it joins; else -1
    ruleset: of level `landlock`, the descriptor of its rules; else -1
    """

    level: str
    kind: str
    folder: str
    mapped: int
    keeper: int = -1
    ruleset: int = -1


def work(order: Order, control: int, output: int) -> NoReturn:
    """Be a worker on the two descriptors; never returns."""
    sock = socket.socket(fileno=control)
    code = 1
    try:
        try:
            _confine(order)
            sock, output = _settle_descriptors(sock.detach(), output)
            _make_home(order.folder)
            confine()
            _rehearse(sock, order)
            session = Interpreter(sock, output, order.folder, order.mapped)
        except Exception as error:
            packets.send(sock, {"failed": f"{type(error).__name__}: {error}"})
            raise
        packets.send(sock, {"ready": True})
        session.serve()
    except EOFError:
        code = 0
    finally:
        os._exit(code)


def _confine(order: Order) -> None:
    if order.level == "namespaces":
        join = linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET
        linux.setns(order.keeper, join)
        become_agent()
    elif order.level == "landlock":
        landlock.enforce(order.ruleset)
        seccomp.install(seccomp.build_filter(network=False, own_signals_only=True))
    os.setsid()
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)


def _rehearse(sock: socket.socket, order: Order) -> None:
    """Run a small program of the kind that is to come.

    A fork copies each page of memory when it is first written, which takes longer than most programs; the pages that
    every program writes are copied here, before anybody waits.
    """
    nowhere = os.open("/dev/null", os.O_WRONLY)
    for library in {"", *order.kind.split("+")} & {"", *sys.modules}:
        Interpreter(sock, nowhere, order.folder, order.mapped).run(_REHEARSALS[library])
    os.close(nowhere)
    gc.collect()
    gc.freeze()


def become_agent() -> None:
    """Take on the agent's user and group, in a user namespace that has no other."""
    with contextlib.suppress(PermissionError):  # an ordinary user may not, and has only its own groups
        os.setgroups([])
    os.setresgid(root.USER, root.USER, root.USER)
    os.setresuid(root.USER, root.USER, root.USER)


def _settle_descriptors(control: int, output: int) -> tuple[socket.socket, int]:
    """Keep standard input, which is empty, output twice, and the two descriptors as the last ones of all."""
    last = open_files() - 1
    control, output = (fcntl.fcntl(fd, fcntl.F_DUPFD, last // 2) for fd in (control, output))
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, 0)
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, last // 2)
    control, output = os.dup2(control, 3), os.dup2(output, 4)
    os.closerange(5, 1 << 16)
    ends = os.dup2(control, last - 1, inheritable=False), os.dup2(output, last, inheritable=False)
    packets.close(control, output)
    return socket.socket(fileno=ends[0]), ends[1]


def _make_home(folder: str) -> None:
    os.umask(0o077)
    Path(folder).mkdir(0o700, exist_ok=True)
    if folder == root.HOME:
        Path("/tmp/shm").mkdir()
    move(folder)
