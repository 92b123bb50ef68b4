"""The parent's handle on the server process that keeps confined workers in stock.

Each process has one a level, started at its first call; a process that was forked from another starts its own. The
server ends with the parent, however the parent ends, and takes all its sessions along.
"""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from ..core import ToolFailure
from ..process import Child, Deadline, Died
from . import packets
from .levels import LevelRefused, check_level
from .zygote import LIBRARIES

DEADLINE = 60.0
"""Seconds in which the server must have started, and found a worker for whoever waits."""

KINDS = ("", *LIBRARIES, "+".join(LIBRARIES))

# One arena for all threads: each would take 64 MiB of an address space that is limited.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "1"}

# A bare stand-in for the root package: the real one imports gymnasium, which no session needs to carry.
_BOOT = """
import sys, types
name, root = sys.argv[1], sys.argv[2]
sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [root]
from {package}.boot import main
main(sys.argv[3], sys.argv[4])
"""


def kind_of(code: str) -> str:
    """Which libraries a program's text speaks of; a worker that has them ready runs it sooner."""
    return "+".join(library for library in LIBRARIES if library in code)


class Server:
    """The server process of one level; raises `LevelRefused` where the machine cannot give it, else `ToolFailure`."""

    def __init__(self, level: str) -> None:
        check_level(level)
        if not sys.platform.startswith("linux"):
            raise ToolFailure(f"the Python tool needs Linux; this is {sys.platform}")
        self.level, self.owner = level, os.getpid()
        self.folder = "" if level == "namespaces" else tempfile.mkdtemp(prefix="python-tool-")
        # Before that of the child, so that it comes after it when the process ends.
        weakref.finalize(self, _remove, self.folder, self.owner)
        name = __package__.split(".")[0]
        code_root = str(Path(__file__).resolve().parents[2])
        # Not -I: it would ignore the hash seed, and the order in which sets print would differ from run to run.
        argv = [
            sys.executable,
            "-s",
            "-P",
            "-c",
            _BOOT.format(package=__package__),
            name,
            code_root,
            level,
            self.folder,
        ]
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        try:
            self.child = Child(argv, env={**_ENVIRONMENT, **threads})
        except OSError as error:
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        self._connect()

    def take(self, kind: str) -> tuple[dict[str, Any], list[int]]:
        """Take a boundary from the stock: its message, its control socket, output pipe, obituary, and keeper's pidfd.

        Raises `ToolFailure` with what the system refused, and `Died` when the server has ended.
        """
        until = time.monotonic() + DEADLINE
        try:
            packets.send(self.notes, {"want": kind})
            while True:
                # A short timeout, since the sockets' own is shared by all threads that wait.
                try:
                    message, fds = packets.receive(self.queues[kind])
                    break
                except TimeoutError:
                    if time.monotonic() > until:
                        raise ToolFailure(f"the Python server found no worker within {DEADLINE:g} s") from None
        except (OSError, EOFError) as error:
            self.child.kill()
            raise Died(f"the Python server has ended: {error}") from error
        if "error" in message:
            raise ToolFailure(f"the Python server cannot make a session: {message['error']}")
        return message, fds

    def note(self, serial: int, *, busy: bool, memory: int) -> None:
        """Say that a boundary of at most `memory` bytes works now, or rests."""
        packets.send(self.notes, {"serial": serial, "busy": busy, "memory": memory})

    def _connect(self) -> None:
        self.notes, notes = packets.pair()
        pairs = [packets.pair() for _ in KINDS]
        self.queues = {kind: ours for kind, (ours, _) in zip(KINDS, pairs)}
        weakref.finalize(self, _close, [self.notes, *self.queues.values()])
        fds = [notes.fileno(), *(theirs.fileno() for _, theirs in pairs)]
        try:
            reply = self.child.request({"kinds": KINDS}, DEADLINE, fds)
        except (Died, Deadline) as error:
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        finally:
            notes.close()
            for _, theirs in pairs:
                theirs.close()
        if "refused" in reply:
            self.child.close()
            raise LevelRefused(self.level, reply["refused"])
        self.stop: int = reply["stop"]
        for queue in self.queues.values():
            queue.settimeout(1.0)


_lock = threading.Lock()
_servers: dict[str, Server] = {}


def current_server(level: str) -> Server:
    """The running server of this process and level; starts one if there is none or it died."""
    with _lock:
        server = _servers.get(level)
        if server is None or not server.child.alive:
            server = _servers[level] = Server(level)
        return server


def _forget_servers() -> None:
    global _lock
    _lock = threading.Lock()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_servers)


def _close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _remove(folder: str, owner: int) -> None:
    if folder and os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
