"""The server process of the Python tool: it keeps confined workers in stock and watches what those in use take.

A boundary is made before it is needed: keeper, namespaces, file systems, a forked and confined worker. Who needs one
says so, takes it from a queue together with all its descriptors, and then talks to the worker directly; this process is
only told when a call begins, so that it looks at the memory of the boundaries that work.
"""

import contextlib
import math
import os
import shutil
import signal
import socket
import time

from ..process import read_frame_with_fds, write_frame
from . import linux, packets, root, watch, zygote
from .boundary import Boundary, Zygote
from .loop import Loop
from .stock import Stock

STOP = {"namespaces": signal.SIGKILL, "landlock": signal.SIGTERM, "rlimits-only": signal.SIGTERM}
"""What ends a boundary, sent to its keeper."""
_REST, _AFTER = 0.05, 0.002
"""Seconds for which the stock is left alone after a call began, and after one ended."""
_LOOK = 0.05
"""Seconds between two looks at the boundaries that work."""
_DYING = 0.02
"""Seconds in which a process that was killed, and cannot be used any more, has ended."""


class Steward:
    """The serving loop."""

    def __init__(self, life: socket.socket, level: str, folder: str) -> None:
        self.life, self.level, self.folder = life, level, folder
        self.loop = Loop()
        self.living = True
        self.queues: dict[str, socket.socket] = {}
        self.stocks: dict[str, Stock] = {}
        self.zygotes: dict[str, Zygote] = {}
        self.boundaries: dict[int, Boundary] = {}
        self.serial = 0
        self.rested = math.inf

    def serve(self) -> None:
        """Serve until the parent goes away."""
        # The kernel reaps the dead, also the workers of a dead zygote: till then nothing of their boundaries would end.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        message, fds = read_frame_with_fds(self.life)
        notes, *queues = (socket.socket(fileno=fd) for fd in fds)
        self.queues = dict(zip(message["kinds"], queues))
        self.stocks = {kind: Stock() for kind in self.queues}
        for queue in queues:
            queue.setblocking(False)
        write_frame(self.life, {"level": self.level, "stop": STOP[self.level]})
        self.loop.on(notes.fileno(), lambda: self.note(notes))
        self.loop.on(self.life.fileno(), self.leave)
        looked = time.monotonic()
        while self.living:
            busy = any(boundary.busy for boundary in self.boundaries.values())
            self.loop.turn(min(self.rested, looked + _LOOK if busy else math.inf))
            now = time.monotonic()
            if now >= self.rested:
                self.restock()
            if busy and now >= looked + _LOOK:
                self.look()
                looked = time.monotonic()

    def leave(self) -> None:
        """Serve no more."""
        self.living = False

    def note(self, notes: socket.socket) -> None:
        """Take down what the parent says."""
        message, _ = packets.receive(notes)
        if "want" in message:
            stock = self.stocks[message["want"]]
            stock.asked += 1
            if stock.handed <= stock.asked:
                self.restock()
            else:  # what is in stock serves the call that begins; making more would only slow it down
                self.rested = time.monotonic() + _REST
        elif boundary := self.boundaries.get(message["serial"]):
            boundary.busy, boundary.memory = message["busy"], message["memory"]

    def restock(self) -> None:
        """Begin as many boundaries as are missing, of the kinds that were ever asked for."""
        self.rested = math.inf
        for kind, stock in self.stocks.items():
            while stock.missing:
                self.begin(kind)

    def restock_after(self, seconds: float) -> None:
        """Restock so many seconds from now, or sooner."""
        self.rested = min(self.rested, time.monotonic() + seconds)

    def begin(self, kind: str) -> None:
        """Make a boundary's descriptors and its keeper, and order its worker."""
        self.serial += 1
        serial = self.serial
        inner = root.HOME if self.level == "namespaces" else f"{self.folder}/{serial}/home"
        boundary = self.boundaries[serial] = Boundary(kind, inner)
        self.stocks[kind].begun += 1
        try:
            boundary.connect()
            furnished = boundary.found() if self.level == "namespaces" else None
        except OSError as error:
            killed = isinstance(error, BrokenPipeError | ProcessLookupError)  # its keeper, at once
            self.fail(serial, str(error), known=not killed)
            return
        if furnished:
            self.loop.on(furnished.fileno(), lambda: self.furnished(serial, furnished))
            self.loop.on(boundary.pidfd, lambda: self.end(serial))
        else:
            self.order(serial)

    def furnished(self, serial: int, sock: socket.socket) -> None:
        """Order the worker of a boundary that is furnished."""
        self.loop.forget(sock.fileno())
        try:
            message, _ = packets.receive(sock)
        except (EOFError, OSError):
            return  # its keeper was killed, which is found out at once
        finally:
            sock.close()
        if "failed" in message:
            self.fail(serial, message["failed"])
        else:
            self.order(serial)

    def order(self, serial: int) -> None:
        """Order the worker of a boundary."""
        boundary = self.boundaries[serial]
        fds = [*boundary.theirs, boundary.obituary]
        if boundary.pidfd >= 0:
            fds.append(boundary.pidfd)
        urgent = self.stocks[boundary.kind].waiting > 0
        try:
            orders = self.zygote(boundary.kind).orders
            packets.send(orders, {"serial": serial, "folder": boundary.folder, "urgent": urgent}, fds)
        except (BrokenPipeError, ConnectionResetError):
            return  # the zygote has just died, which is found out at once, and takes this boundary along
        except OSError as error:
            self.fail(serial, str(error))
            return
        packets.close(*boundary.theirs)
        boundary.theirs = []

    def zygote(self, kind: str) -> Zygote:
        """The warm interpreter of a kind; it is started if need be."""
        if kind not in self.zygotes:
            self.zygotes[kind] = Zygote(*zygote.found(self.level, kind))
            self.loop.on(self.zygotes[kind].orders.fileno(), lambda: self.forked(kind))
        return self.zygotes[kind]

    def forked(self, kind: str) -> None:
        """Hand out a boundary whose worker is forked."""
        warm = self.zygotes[kind]
        try:
            message, fds = packets.receive(warm.orders)
        except (EOFError, OSError):
            self.lose(kind)
            return
        if "failed" in message:
            warm.reason = message["failed"]
            return
        serial = message["serial"]
        boundary = self.boundaries.get(serial)
        warm.proven |= "pid" in message
        if boundary is None:  # its keeper was killed meanwhile
            packets.close(*fds)
            return
        if "error" in message:
            self.fail(serial, message["error"], known=not boundary.ended(_DYING))
            return
        boundary.worker = message["pid"]
        if boundary.pidfd < 0:  # the forked process is the keeper
            boundary.keeper, boundary.pidfd = message["pid"], fds[0]
            self.loop.on(boundary.pidfd, lambda: self.end(serial))
        else:
            packets.close(*fds)
        self.hand(serial)

    def hand(self, serial: int) -> None:
        """Put a boundary into the queue of its kind."""
        boundary = self.boundaries[serial]
        bundle = {"serial": serial, "folder": boundary.folder}
        try:
            packets.send(self.queues[boundary.kind], bundle, [*boundary.ours, boundary.pidfd])
        except OSError as error:
            self.fail(serial, str(error))
            return
        packets.close(*boundary.ours)
        boundary.ours, boundary.handed = [], True
        stock = self.stocks[boundary.kind]
        stock.hand()
        if stock.missing:  # none were made beyond those asked for, as long as they failed
            self.restock_after(_AFTER)

    def tell(self, kind: str, reason: str) -> None:
        """Put the reason why there is no boundary into the queue of a kind."""
        self.stocks[kind].tell()
        with contextlib.suppress(BrokenPipeError):
            packets.send(self.queues[kind], {"error": reason})

    def fail(self, serial: int, reason: str, *, known: bool = True) -> None:
        """Let go of a boundary that cannot be made; `known` is a reason that would hold for the next one too."""
        kind = self.boundaries[serial].kind
        self.discard(serial)
        if self.stocks[kind].fault(known=known):
            self.tell(kind, reason)
        self.restock_after(0)

    def end(self, serial: int) -> None:
        """Bury a boundary whose keeper has ended, and with it all its processes."""
        if not self.boundaries[serial].handed:
            self.fail(serial, "their keepers keep dying", known=False)
            return
        self.discard(serial)
        if self.rested < math.inf:
            self.restock_after(_AFTER)

    def lose(self, kind: str) -> None:
        """Bury a zygote that has died, with all its boundaries.

        Those who wait are told if it never forked a worker, since the next one would not either; else they wait for it.
        """
        warm = self.zygotes.pop(kind)
        self.loop.forget(warm.orders.fileno())
        warm.orders.close()
        lost = [serial for serial, boundary in self.boundaries.items() if boundary.kind == kind]
        for serial in lost:
            self.discard(serial)
        stock = self.stocks[kind]
        if stock.fault(known=not warm.proven):
            while stock.waiting:
                self.tell(kind, f"the warm interpreter ended: {warm.reason}")
        self.restock_after(0)

    def discard(self, serial: int) -> None:
        """Let go of a boundary, and end it if it has not."""
        boundary = self.boundaries.pop(serial)
        if not boundary.handed:
            self.stocks[boundary.kind].lose()
        if boundary.furnished:
            self.loop.forget(boundary.furnished.fileno())
        self.loop.forget(boundary.pidfd)
        boundary.signal(STOP[self.level])
        boundary.close()

    def look(self) -> None:
        """End each boundary whose processes are too many or hold too much memory."""
        for boundary in self.boundaries.values():
            if boundary.busy and boundary.oversteps():
                packets.record(boundary.obituary, packets.MEMORY)
                boundary.signal(STOP[self.level])

    def stop(self) -> None:
        """End everything."""
        for boundary in self.boundaries.values():
            boundary.signal(STOP[self.level])
            boundary.ended(1.0)
        for pid in watch.tree([own := os.getpid()]):  # zygotes, and what outlived a keeper that was killed
            if pid != own:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
