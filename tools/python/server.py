"""The parent's handle on the warm server process from which Python sessions are forked.

Each process has one, started at its first call; a process that was forked from another starts its own. The server ends
with the parent, however the parent ends, and takes all its sessions along.
"""

import itertools
import os
import shutil
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

from ..core import ToolFailure
from ..process import Child

SERVER_DEADLINE = 30.0

# A bare stand-in for the root package: the real one imports gymnasium, which no session needs to carry.
_BOOT = """
import sys, types
name, root = sys.argv[1], sys.argv[2]
sys.modules[name] = types.ModuleType(name)
sys.modules[name].__path__ = [root]
from {package}.zygote import main
main(sys.argv[3])
"""


class Server:
    """The warm server process and the directory under which its sessions work."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise ToolFailure(f"the Python tool needs Linux (process groups with a reaper); this is {sys.platform}")
        self.root = tempfile.mkdtemp(prefix="python-tool-")
        name = __package__.split(".")[0]
        boot = _BOOT.format(package=__package__)
        code_root = str(Path(__file__).resolve().parents[2])
        # Not -I: it would ignore the hash seed, and the order in which sets print would differ from run to run.
        argv = [sys.executable, "-s", "-P", "-c", boot, name, code_root, self.root]
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
        try:
            self.child = Child(argv, env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", **threads})
        except OSError as error:
            shutil.rmtree(self.root, ignore_errors=True)
            raise ToolFailure(f"the Python server cannot be started: {error}") from error
        self.serials = itertools.count()
        self.owner = os.getpid()
        weakref.finalize(self, _remove, self.root, self.owner)

    def ask(self, do: str, serial: int, fds: tuple[int, ...] = (), **values: Any) -> Any:
        """One request to the server; raises `Died`, `Deadline`, or `ToolFailure` with what the system refused."""
        reply = self.child.request({"do": do, "serial": serial, **values}, SERVER_DEADLINE, fds)
        if "error" in reply:
            raise ToolFailure(f"the Python server cannot {do} a session: {reply['error']}")
        return reply["code"]


_lock = threading.Lock()
_server: Server | None = None


def current_server() -> Server:
    """The running server of this process; starts one if there is none or it died."""
    global _server
    with _lock:
        if _server is None or not _server.child.alive:
            _server = Server()
        return _server


def _forget_server() -> None:
    global _lock, _server
    _lock, _server = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_server)


def _remove(root: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(root, ignore_errors=True)
