"""The server process of the Python tool: it keeps confined workers in stock and watches what those in use take.

A boundary is made before it is needed: keeper, namespaces, file systems, a forked and confined worker. Who needs one
says so, takes it from a queue together with all its descriptors, and then talks to the worker directly; this process is
only told when a call begins, so that it looks at the memory of the boundaries that work.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..process import inherited_socket, read_frame_with_fds, write_frame
from . import keeper, landlock, linux, packets, root, watch
from .limits import PROCESSES, raise_open_files
from .stock import Boundary, Stock, Zygote
from .zygote import main as be_zygote

STOP = {"namespaces": signal.SIGKILL, "landlock": signal.SIGTERM, "rlimits-only": signal.SIGTERM}
"""What ends a boundary, sent to its keeper."""
SPARE = 2
"""Boundaries of a kind that are ready beyond those asked for."""
_REST, _AFTER = 0.05, 0.002
"""Seconds for which the stock is left alone after a call began, and after one ended."""
_ASK = 0xFFFFFFFF
_LOOK = 0.05
"""Seconds between two looks at the boundaries that work."""


class Steward:
    """The serving loop."""

    def __init__(self, life: socket.socket, level: str, folder: str) -> None:
        self.life, self.level, self.folder = life, level, folder
        self.poll = select.poll()
        self.on: dict[int, Callable[[], None]] = {}
        self.stocks: dict[str, Stock] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.boundaries: dict[int, Boundary] = {}
        self.serial = 0
        self.rested: float | None = None

    def serve(self) -> None:
        """Serve until the parent goes away."""
        message, fds = read_frame_with_fds(self.life)
        notes, *queues = (socket.socket(fileno=fd) for fd in fds)
        self.stocks = {kind: Stock(queue) for kind, queue in zip(message["kinds"], queues)}
        for queue in queues:
            queue.setblocking(False)
        write_frame(self.life, {"level": self.level, "stop": STOP[self.level]})
        self.await_(notes.fileno(), lambda: self.note(notes))
        self.poll.register(self.life, select.POLLIN)
        looked = time.monotonic()
        while True:
            busy = any(boundary.busy for boundary in self.boundaries.values())
            due = [at for at in (looked + _LOOK if busy else None, self.rested) if at is not None]
            for fd, _ in self.poll.poll(max(0, 1000 * (min(due) - time.monotonic())) if due else None):
                if fd == self.life.fileno():
                    return
                if fd in self.on:
                    self.on[fd]()
            now = time.monotonic()
            if self.rested is not None and now >= self.rested:
                self.restock()
            if busy and now >= looked + _LOOK:
                self.look()
                looked = time.monotonic()

    def await_(self, fd: int, then: Callable[[], None]) -> None:
        """Call `then` whenever `fd` is readable."""
        self.on[fd] = then
        self.poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        """Wait for `fd` no more."""
        del self.on[fd]
        self.poll.unregister(fd)

    def note(self, notes: socket.socket) -> None:
        """Take down what the parent says."""
        message, _ = packets.receive(notes)
        if "want" in message:
            stock = self.stocks[message["want"]]
            stock.asked += 1
            if stock.begun <= stock.asked:
                self.restock()
            else:  # what is in stock serves the call that begins; making more would only slow it down
                self.rested = time.monotonic() + _REST
        elif boundary := self.boundaries.get(message["serial"]):
            boundary.busy, boundary.memory = message["busy"], message["memory"]

    def restock(self) -> None:
        """Begin as many boundaries as are missing, of the kinds that were ever asked for."""
        self.rested = None
        for kind, stock in self.stocks.items():
            while stock.asked and stock.begun < stock.asked + SPARE:
                stock.begun += 1
                try:
                    self.begin(kind)
                except OSError as error:
                    self.hand(kind, {"error": str(error)})
                    break

    def begin(self, kind: str) -> None:
        """Make a boundary's descriptors and its keeper, and order its worker."""
        self.serial += 1
        serial = self.serial
        inner = root.HOME if self.level == "namespaces" else f"{self.folder}/{serial}/home"
        boundary = self.boundaries[serial] = Boundary(kind, inner)
        try:
            boundary.connect()
            if self.level == "namespaces":
                boundary.keeper, furnished = keeper.found()
                boundary.pidfd = os.pidfd_open(boundary.keeper)
                keeper.map_users(boundary.keeper)
                packets.send(furnished, {})
        except OSError:
            self.discard(serial)
            raise
        if self.level != "namespaces":
            self.order(serial)
            return
        self.await_(furnished.fileno(), lambda: self.furnished(serial, furnished))
        self.await_(boundary.pidfd, lambda: self.end(serial))

    def furnished(self, serial: int, sock: socket.socket) -> None:
        """Order the worker of a boundary that is furnished."""
        self.forget(sock.fileno())
        try:
            message, _ = packets.receive(sock)
        except (EOFError, OSError):
            message = {"failed": "its keeper died"}
        sock.close()
        if "failed" in message:
            self.hand(self.boundaries[serial].kind, {"error": message["failed"]})
        else:
            self.order(serial)

    def order(self, serial: int) -> None:
        """Order the worker of a boundary."""
        boundary = self.boundaries[serial]
        fds = [*boundary.theirs, boundary.obituary]
        if boundary.pidfd >= 0:
            fds.append(boundary.pidfd)
        packets.send(self.zygote(boundary.kind), {"serial": serial, "folder": boundary.folder}, fds)
        packets.close(*boundary.theirs)
        boundary.theirs = []

    def zygote(self, kind: str) -> socket.socket:
        """The warm interpreter of a kind; it is started if need be."""
        if kind not in self.zygotes:
            ours, theirs = packets.pair()
            pid = os.fork()
            if not pid:
                kept = os.dup2(theirs.fileno(), 3)
                os.closerange(4, 1 << 16)
                be_zygote(socket.socket(fileno=kept), self.level, kind)
            theirs.close()
            self.zygotes[kind] = Zygote(pid, ours)
            self.await_(ours.fileno(), lambda: self.forked(kind, ours))
        return self.zygotes[kind].orders

    def forked(self, kind: str, sock: socket.socket) -> None:
        """Hand out a boundary whose worker is forked."""
        try:
            message, fds = packets.receive(sock)
        except (EOFError, OSError):
            self.lose(kind)
            return
        boundary = self.boundaries[message["serial"]]
        if "error" in message:
            self.hand(kind, message)
            return
        self.zygotes[kind].proven = True
        boundary.worker = message["pid"]
        if boundary.pidfd < 0:  # the forked process is the keeper
            boundary.keeper, boundary.pidfd = message["pid"], fds[0]
            self.await_(boundary.pidfd, lambda: self.end(message["serial"]))
        else:
            packets.close(*fds)
        bundle = {"serial": message["serial"], "folder": boundary.folder}
        self.hand(kind, bundle, [*boundary.ours, boundary.pidfd])
        packets.close(*boundary.ours)
        boundary.ours = []

    def hand(self, kind: str, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Put a boundary, or why there is none, into the queue of its kind."""
        self.stocks[kind].handed += 1
        with contextlib.suppress(BrokenPipeError):
            packets.send(self.stocks[kind].queue, message, fds)

    def end(self, serial: int) -> None:
        """Bury a boundary whose keeper has ended, and with it all its processes."""
        self.forget(self.boundaries[serial].pidfd)
        self.discard(serial)
        if self.rested is not None:
            self.rested = time.monotonic() + _AFTER

    def discard(self, serial: int) -> None:
        """Let go of a boundary that has ended or never began."""
        boundary = self.boundaries.pop(serial)
        if boundary.keeper and self.level == "namespaces":  # else it is the zygote's child
            os.kill(boundary.keeper, signal.SIGKILL)
            os.waitpid(boundary.keeper, 0)
        boundary.close()

    def lose(self, kind: str) -> None:
        """Bury a zygote that has died, with all its boundaries.

        Those who wait are told if it never forked a worker, since the next one would not either; else they wait for it.
        """
        zygote = self.zygotes.pop(kind)
        self.forget(zygote.orders.fileno())
        zygote.orders.close()
        _, status = os.waitpid(zygote.pid, 0)
        for boundary in self.boundaries.values():
            if boundary.kind == kind and boundary.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(boundary.pidfd, signal.SIGKILL)
        stock = self.stocks[kind]
        stock.begun = stock.handed
        if zygote.proven:
            self.restock()
            return
        while stock.handed < stock.asked:
            stock.begun += 1
            self.hand(kind, {"error": f"the warm interpreter ended ({os.waitstatus_to_exitcode(status)})"})

    def look(self) -> None:
        """End each boundary whose processes are too many or hold too much memory."""
        for boundary in self.boundaries.values():
            if boundary.busy:
                pids = watch.tree((boundary.keeper, boundary.worker))
                if len(pids) > PROCESSES + 2 or watch.memory(pids, boundary.memory) > boundary.memory:
                    packets.record(boundary.obituary, packets.MEMORY)
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(boundary.pidfd, STOP[self.level])

    def stop(self) -> None:
        """End everything."""
        for boundary in self.boundaries.values():
            if boundary.pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(boundary.pidfd, STOP[self.level])
                select.select([boundary.pidfd], [], [], 1)
        for zygote in self.zygotes.values():
            os.kill(zygote.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def main(level: str, folder: str) -> None:
    """Serve the parent on the inherited socket; without namespaces, sessions work in directories under `folder`."""
    _fix_addresses()
    raise_open_files()
    life = inherited_socket()
    try:
        _prepare(level)
    except OSError as error:
        read_frame_with_fds(life)
        write_frame(life, {"refused": str(error)})
        return
    steward = Steward(life, level, folder)
    try:
        steward.serve()
    finally:
        steward.stop()


def _fix_addresses() -> None:
    """Start this process anew without address randomisation: what programs print is then the same from run to run."""
    with contextlib.suppress(OSError):  # some containers forbid it, and do without
        if not linux.personality(_ASK) & linux.ADDR_NO_RANDOMIZE:
            linux.personality(linux.ADDR_NO_RANDOMIZE)
            if linux.personality(_ASK) & linux.ADDR_NO_RANDOMIZE:
                os.execv(sys.executable, sys.orig_argv)


def _prepare(level: str) -> None:
    """Find out whether this machine can give a level, and prepare for it; OSError with the reason where it cannot."""
    if level == "landlock" and landlock.abi() < 1:
        raise OSError("the kernel has no Landlock, or it is switched off")
    if level == "namespaces":
        keeper.enter()
        pid, sock = keeper.found()
        keeper.map_users(pid)
        packets.send(sock, {})
        message, _ = packets.receive(sock)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sock.close()
        if "failed" in message:
            raise OSError(message["failed"])
