"""The start of the server process: what its machine can give, found out before anything is served."""

import contextlib
import os
import signal
import sys

from ..process import inherited_socket, read_frame_with_fds, write_frame
from . import keeper, landlock, linux, packets
from .limits import raise_open_files
from .steward import Steward

_ASK = 0xFFFFFFFF


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
