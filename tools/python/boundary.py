"""A boundary as the server knows it, and the warm interpreter that its worker is forked from."""

import contextlib
import os
import select
import signal
import socket
from dataclasses import dataclass, field

from . import keeper, packets, watch
from .limits import PROCESSES


@dataclass
class Boundary:
    """One boundary, from the making of its keeper to its end.

    ours: the descriptors for whoever takes it: control socket, output pipe, obituary; empty once they are handed out
    theirs: the worker's ends of these
    furnished: the socket on which its keeper says that it is furnished
    """

    kind: str
    folder: str
    ours: list[int] = field(default_factory=list)
    theirs: list[int] = field(default_factory=list)
    furnished: socket.socket | None = None
    obituary: int = -1
    keeper: int = 0
    pidfd: int = -1
    worker: int = 0
    memory: int = 0  # bytes it may hold; 0 until it is used
    busy: bool = False
    handed: bool = False

    def connect(self) -> None:
        """Make its descriptors."""
        ours, theirs = packets.pair()
        packets.known(ours)
        self.ours, self.theirs = [ours.detach()], [theirs.detach()]
        for _ in ("output", "obituary"):
            reading, writing = os.pipe()
            self.ours.append(reading)
            self.theirs.append(writing)
        self.obituary = self.theirs.pop()

    def found(self) -> socket.socket:
        """Start its keeper, in namespaces of its own; return the socket on which that says that it is furnished."""
        self.keeper, self.furnished = keeper.found()
        self.pidfd = os.pidfd_open(self.keeper)
        keeper.map_users(self.keeper)
        packets.send(self.furnished, {})
        return self.furnished

    def ended(self, wait: float = 0.0) -> bool:
        """Whether its keeper has ended, within so many seconds; not where the keeper is not known yet."""
        poll = select.poll()
        if self.pidfd >= 0:
            poll.register(self.pidfd, select.POLLIN)
        return self.pidfd >= 0 and bool(poll.poll(1000 * wait))

    def signal(self, number: int) -> None:
        """Send a signal to its keeper; harmless where that has ended or is not known yet."""
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def oversteps(self) -> bool:
        """Whether its processes are too many or hold too much memory together."""
        pids = watch.tree((self.keeper, self.worker))
        return len(pids) > PROCESSES + 2 or watch.memory(pids, self.memory) > self.memory

    def close(self) -> None:
        """Close what descriptors it has."""
        if self.furnished:
            self.furnished.close()
        packets.close(*(fd for fd in (self.pidfd, self.obituary, *self.ours, *self.theirs) if fd >= 0))


@dataclass
class Zygote:
    """A warm interpreter; it is proven once it has forked a worker. The reason is why it will have ended."""

    pid: int
    orders: socket.socket
    proven: bool = False
    reason: str = "it was killed"
