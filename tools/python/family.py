"""A boundary as its user sees it: a session and its forks, which end together."""

import contextlib
import os
import select
import shutil
import signal
import socket
import threading
from pathlib import Path

from ..core import ToolFailure
from . import packets
from .server import DEADLINE, Server

_REMOVED = 200
"""Folders that one fork removes at most: their numbers have to fit into a packet."""


class Family:
    """The processes of one boundary; `members` sessions live in it. Methods may be called from any thread."""

    def __init__(self, server: Server, serial: int, folder: str, keeper: int, obituary: int) -> None:
        self.server, self.serial, self.folder = server, serial, folder
        self.keeper, self.obituary = keeper, obituary
        self.members, self.born = 1, 1
        self.left: list[int] = []
        self.out_of_memory = False
        self.exit_status: int | None = None
        self.lost = False
        self.alive = True
        self._lock = threading.Lock()
        os.set_blocking(obituary, False)

    def join(self) -> tuple[int, list[int]]:
        """Count one more member; return its number, and those of members that have left a folder behind."""
        with self._lock:
            self.members += 1
            self.born += 1
            left, self.left = self.left[:_REMOVED], self.left[_REMOVED:]
            return self.born, left

    def folder_of(self, member: int) -> str:
        """Where a member works; the first one is number 1."""
        return self.folder if member == 1 else f"{self.folder}-{member}"

    def leave(self, member: int) -> None:
        """Count one member less; with the last one end everything, and wait until it is."""
        with self._lock:
            self.members -= 1
            self.left.append(member)
            if self.members or not self.alive:
                return
            self.alive = False
        if self.server.owner == os.getpid():
            self.kill()
            self.wait()
            if self.server.folder:
                shutil.rmtree(Path(self.folder).parent, ignore_errors=True)
        packets.close(self.keeper, self.obituary)

    def kill(self) -> None:
        """End all processes; they may not be gone yet."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.keeper, self.server.stop)

    def wait(self) -> None:
        """Wait until all processes are gone; raises `ToolFailure` when they are not after a minute."""
        if not wait(self.keeper, DEADLINE):
            raise ToolFailure(f"the processes of a Python session did not end within {DEADLINE:g} s of being killed")

    def read_obituary(self, timeout: float) -> None:
        """Note what the obituary says, within `timeout` seconds; its end without a word means that the server ended."""
        with self._lock:
            if not self.alive or not wait(self.obituary, timeout):
                return
            records = packets.records(self.obituary)
            self.lost = not records and self.exit_status is None and not self.out_of_memory
            for kind, value in records:
                if kind == packets.MEMORY:
                    self.out_of_memory = True
                else:
                    self.exit_status = value

    def busy(self, working: bool, memory: int) -> None:
        """Tell the server whether a call is under way, of at most `memory` bytes a member."""
        with contextlib.suppress(OSError):  # a server that has ended took its sessions along, which is found out
            self.server.note(self.serial, busy=working, memory=memory * self.members)


def wait(fd: int | socket.socket, timeout: float) -> bool:
    """Whether `fd` is readable, or at its end, within `timeout` seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, timeout) * 1000))
