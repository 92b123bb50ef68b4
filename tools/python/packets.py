"""Messages between the parts of the Python tool: small JSON values, each one packet with the descriptors it carries.

Packets keep their borders, so any number of threads may send and receive on one socket, and what a program writes onto
a descriptor that it finds open is one more packet, not a break in a stream.
"""

import contextlib
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

SIZE = 4096
_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(6 * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
_REPORT = struct.Struct("=Bi")

EXIT, MEMORY = 0, 1
"""Reports on an exit pipe: the worker's wait status, or that the boundary is ended for its memory."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a packet connection."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message; raises OSError when nobody can receive it."""
    body = json.dumps(message).encode()
    if fds:
        socket.send_fds(sock, [body], fds)
    else:
        sock.send(body)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one message and its descriptors.

    Raises EOFError when the other end is gone, TimeoutError after the socket's timeout, ValueError for no message.
    """
    message, fds, _ = receive_from(sock)
    return message, fds


def receive_from(sock: socket.socket) -> tuple[dict[str, Any], list[int], int]:
    """Receive one message, its descriptors and the number of the process that sent it, 0 without `show_senders`."""
    body, ancillary, flags, _ = sock.recvmsg(SIZE, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    sender = 0
    for _, kind, data in ancillary:
        if kind == socket.SCM_RIGHTS:
            fds += memoryview(data)[: len(data) // 4 * 4].cast("i")
        else:
            sender = _CREDENTIALS.unpack(data)[0]
    try:
        if not body:
            raise EOFError("the other end is gone")
        try:
            message = json.loads(body)
        except RecursionError:
            message = None
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or not isinstance(message, dict):
            raise ValueError("not a message")
    except BaseException:
        close(*fds)
        raise
    return message, fds, sender


def show_senders(sock: socket.socket) -> None:
    """Have the kernel say, of each message to this end, which process sent it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def report(fd: int, kind: int, value: int = 0) -> None:
    """Write a report onto an exit pipe; it does not matter whether anyone still reads."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, _REPORT.pack(kind, value))


def reports(fd: int) -> list[tuple[int, int]]:
    """Read the reports that are there; an empty list at the end of the exit pipe."""
    return list(_REPORT.iter_unpack(os.read(fd, _REPORT.size * 16)))


def close(*fds: int) -> None:
    """Close descriptors."""
    for fd in fds:
        os.close(fd)
