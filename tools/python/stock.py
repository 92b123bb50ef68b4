"""What the server has in stock: boundaries by kind, and the warm interpreters that their workers are forked from."""

import os
import socket
from dataclasses import dataclass, field

from . import packets


@dataclass
class Boundary:
    """One boundary, from the making of its keeper to its end.

    ours: the descriptors for whoever takes it: control socket, output pipe, obituary
    theirs: the worker's ends of these
    """

    kind: str
    folder: str
    ours: list[int] = field(default_factory=list)
    theirs: list[int] = field(default_factory=list)
    obituary: int = -1
    keeper: int = 0
    pidfd: int = -1
    worker: int = 0
    memory: int = 0  # bytes it may hold; 0 until it is used
    busy: bool = False

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

    def close(self) -> None:
        """Close what descriptors it has."""
        packets.close(*(fd for fd in (self.pidfd, self.obituary, *self.ours, *self.theirs) if fd >= 0))


@dataclass
class Stock:
    """The boundaries of one kind: how many were asked for, begun, and handed out; a failure counts as handed out."""

    queue: socket.socket
    asked: int = 0
    begun: int = 0
    handed: int = 0


@dataclass
class Zygote:
    """A warm interpreter; it is proven once it has forked a worker."""

    pid: int
    orders: socket.socket
    proven: bool = False
