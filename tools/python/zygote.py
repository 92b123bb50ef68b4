"""The warm server process: one interpreter, started once, from which every session is forked.

It knows its sessions by the serial numbers that the parent gives them. A session's process group is killed before the
session is reaped, while its number cannot belong to anyone else. When the parent goes away, everything goes.
"""

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from ..process import inherited_socket, read_frame_with_fds, write_frame
from .interpreter import libc, live

_PR_SET_CHILD_SUBREAPER = 36
_PRELOADED = (
    "bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools json math "
    "operator random re statistics string typing"
)


class Zygote:
    """The serving loop; `sessions` maps serial numbers to processes, `ended` to the exit codes of those that died."""

    def __init__(self, sock: socket.socket, root: str) -> None:
        self.sock, self.root = sock, root
        self.sessions: dict[int, int] = {}
        self.ended: dict[int, int] = {}

    def serve(self) -> None:
        """Answer the parent until it goes away."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        while True:
            # A session that nobody ends, because its owner was garbage, ends by itself and is buried here.
            if poll.poll(1000 if self.sessions else None):
                request, fds = read_frame_with_fds(self.sock)
                write_frame(self.sock, self.answer(request, fds))
            self.bury()

    def answer(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Carry out one request; what the system refuses is an `error` in the reply and harms no other session."""
        serial = request["serial"]
        try:
            if request["do"] == "open":
                self.open(serial, request["memory_mb"], fds)
            elif request["do"] == "adopt":
                self.adopt(serial, request["pid"])
            elif serial in self.sessions:
                self.kill(serial)
        except OSError as error:
            return {"error": str(error)}
        finally:
            for fd in fds:
                os.close(fd)
        return {"code": self.ended.pop(serial, None)}

    def open(self, serial: int, memory_mb: int, fds: list[int]) -> None:
        """Fork a session on the socket and pipe in `fds`."""
        zygote = os.getpid()
        pid = os.fork()
        if not pid:
            self.sock.close()
            live(socket.socket(fileno=fds[0]), fds[1], f"{self.root}/{serial}", memory_mb, zygote)
        self.sessions[serial] = pid

    def adopt(self, serial: int, pid: int) -> None:
        """Take on the twin that a session made of itself; ChildProcessError when it is no child of this process."""
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        self.sessions[serial] = pid

    def kill(self, serial: int) -> None:
        """Kill a session with its process group, reap it and note its exit code (negative: the signal)."""
        pid = self.sessions.pop(serial)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # it may not have made its group yet
        _, status = os.waitpid(pid, 0)
        self.ended[serial] = os.waitstatus_to_exitcode(status)

    def bury(self) -> None:
        """Reap every child that has died."""
        serials = {pid: serial for serial, pid in self.sessions.items()}
        with contextlib.suppress(ChildProcessError):
            while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if dead.si_pid in serials:
                    self.kill(serials[dead.si_pid])
                    shutil.rmtree(f"{self.root}/{serials[dead.si_pid]}", ignore_errors=True)
                else:
                    os.waitpid(dead.si_pid, 0)

    def stop(self) -> None:
        """End every session, then whatever left its session's process group, and remove all directories."""
        for serial in list(self.sessions):
            self.kill(serial)
        with contextlib.suppress(ChildProcessError):
            while True:
                for pid in _children():
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
        shutil.rmtree(self.root, ignore_errors=True)


def main(root: str) -> None:
    """Serve the parent on the inherited socket; sessions work in directories under `root`."""
    sock = inherited_socket()
    # Orphans of the sessions become children of this process, which can then find and reap them.
    libc().prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for name in _PRELOADED.split():
        importlib.import_module(name)
    # The agent finds a plain interpreter; this package's functions live on without their entries.
    for name in [name for name in sys.modules if name.split(".")[0] == __name__.split(".")[0]]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    zygote = Zygote(sock, root)
    try:
        zygote.serve()
    except EOFError:
        pass
    finally:
        zygote.stop()


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
