"""Runs a server and ends it, with every process that it started, when the process that asked for it goes away.

`python _guard.py LOG COMMAND… SOCKET` imports nothing of the package. The server shares this process's group, so one
signal ends them all; the other end of the socket closes with its holder, however that one dies.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

PATIENCE = 2.0  # seconds in which the server may end by itself


def main(log: str, *rest: str) -> None:
    """Run the command until it ends, or the holder of the socket does."""
    *command, number = rest
    holder = socket.socket(fileno=int(number))
    holder.set_inheritable(False)
    with Path(log).open("ab") as file:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    threading.Thread(target=_end_with, args=(holder, server), daemon=True).start()
    code = server.wait()
    with Path(log).open("ab") as file:
        file.write(f"the server's process ended with exit code {code}\n".encode())
    os.killpg(0, signal.SIGKILL)


def _end_with(holder: socket.socket, server: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        holder.recv(1)
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(PATIENCE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
