"""Keepers: the process whose end is the end of all processes of a boundary.

With namespaces it is the first process of a process namespace, and the kernel ends the rest with it. Without, it is a
subreaper: it finds and kills its descendants itself.
"""

import contextlib
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from . import landlock, linux, packets, root
from .worker import Order, become_agent, work

_NOBODY = 65534
ALL = linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWPID | linux.NEWNET


def found() -> tuple[int, socket.socket]:
    """Start the first process of new namespaces; return it and the socket on which it waits for its user ids.

    It furnishes its boundary then, answers `{"proc": bool}` or `{"failed": reason}`, and sleeps until it is killed.
    """
    ours, theirs = packets.pair()
    pid = linux.clone(ALL)
    if pid:
        theirs.close()
        return pid, ours
    try:
        # The kernel lets no signal from inside reach a first process, unless it has a handler.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps its orphans
        ours.close()
        packets.receive(theirs)
        become_agent()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else nobody may join its namespaces
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        packets.send(theirs, {"proc": root.furnish()})
        os.closerange(0, 1 << 16)
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            packets.send(theirs, {"failed": str(error)})
    finally:
        os._exit(1)


def enter() -> None:
    """Move this process into a user namespace in which it may make others, and into the file tree of `root`.

    A privileged process maps a second user for its boundaries, since limits on processes do not bind the first one.
    """
    maps = {name: _maps(f"/proc/self/{name}", identity) for name, identity in _identities().items()}
    ours, theirs = packets.pair()
    pid, helper = os.getpid(), os.fork()
    if not helper:
        # From outside, where the privilege to map is.
        try:
            ours.close()
            packets.receive(theirs)
            if os.geteuid():
                Path(f"/proc/{pid}/setgroups").write_text("deny")
            for name, text in maps.items():
                Path(f"/proc/{pid}/{name}").write_text(text)
        except (EOFError, OSError):
            os._exit(1)
        os._exit(0)
    theirs.close()
    try:
        linux.unshare(linux.NEWUSER | linux.NEWNS)
        packets.send(ours, {})
    finally:
        ours.close()
        _, status = os.waitpid(helper, 0)
    if status:
        raise OSError("the users of a user namespace cannot be mapped")
    root.build()


def map_users(pid: int) -> None:
    """Give the user namespace of a keeper its one user and group."""
    for name in _identities():
        own = len(Path(f"/proc/self/{name}").read_text().splitlines()) == 1
        Path(f"/proc/{pid}/{name}").write_text(f"{root.USER} {0 if own else root.USER} 1\n")


def _identities() -> dict[str, int]:
    return {"uid_map": os.geteuid(), "gid_map": os.getegid()}


def _maps(path: str, identity: int) -> str:
    """The map of a user namespace: this process's own user as 0 and, where it may, nobody as the agent."""
    ranges = [[int(number) for number in line.split()] for line in Path(path).read_text().splitlines()]
    nobody = any(first <= _NOBODY < first + count for first, _, count in ranges)
    return f"0 {identity} 1\n" + (f"{root.USER} {_NOBODY} 1\n" if nobody and not os.geteuid() else "")


def keep(order: Order, control: int, output: int, obituary: int, parent: int) -> NoReturn:
    """Be the keeper of a worker without namespaces: fork it, await it, and end whatever it leaves behind."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.die_with(parent)
    os.setsid()
    own = os.getpid()
    signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    worker = os.fork()
    if not worker:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        linux.die_with(own)
        work(_ruled(order), control, output)
    packets.close(control, output)
    while signal.sigwait(signals) == signal.SIGCHLD:
        _reap(worker, obituary)
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        _reap(worker, obituary, len(children))
    os._exit(0)


def _ruled(order: Order) -> Order:
    """The order with the rules of its level, for the folder that is made here."""
    private = Path(order.folder).parent
    private.mkdir(0o700)
    if order.level != "landlock":
        return order
    readable = [*root.visible(), *(f"/dev/{name}" for name in root.DEVICES)]
    return replace(order, ruleset=landlock.build(read=readable, write=[str(private), "/dev/null"]))


def _reap(worker: int, obituary: int, awaited: int = 0) -> None:
    """Reap the dead, and wait until so many are; say how `worker` ended if it is one of them."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if awaited > 0 else os.WNOHANG))[0]:
            awaited -= 1
            if ended[0] == worker:
                packets.record(obituary, packets.EXIT, ended[1])


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
