"""Messages between processes: JSON values, as frames on a stream or as packets.

A frame is a 4-byte big-endian length and that many bytes of JSON; `serve` is the loop of a child that answers them. A
packet is sent and received at once, with the descriptors it carries: any number of threads may send and receive on one
socket, and what a program writes onto a descriptor that it finds open is one more packet, not a break in a stream.

This file runs by itself too, in children that import nothing of the package, and imports nothing heavy.
"""

import contextlib
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

MAX_FRAME = 8 * 2**20
PACKET = 4096  # bytes of a packet at most
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")
_ANCILLARY = socket.CMSG_SPACE(6 * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
_CUT = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_REPORT = struct.Struct("=Bi")
EXIT, MEMORY = (
    0,
    1,
)  # reports on an exit pipe: the worker's wait status, or that the boundary is ended for its memory


def write_frame(sock: socket.socket, payload: Any) -> None:
    """Send a JSON value; ValueError when it is over `MAX_FRAME` bytes."""
    sock.sendall(encode(payload))


def read_frame(sock: socket.socket, until: float | None = None) -> Any:
    """Receive a JSON value until a `time.monotonic()` value; raises EOFError, TimeoutError, OSError, and ValueError."""
    (length,) = _LENGTH.unpack(read_exactly(sock, _LENGTH.size, until))
    if length > MAX_FRAME:
        raise ValueError(f"the frame claims {length} bytes; at most {MAX_FRAME} are allowed")
    return json.loads(read_exactly(sock, length, until))


def inherited_sockets(number: int = 1) -> list[socket.socket]:
    """Return the sockets that `Child` gave to this process, the last of which is that to the parent."""
    found = [socket.socket(fileno=int(fd)) for fd in sys.argv[-number:]]
    for sock in found:
        sock.set_inheritable(False)
    return found


def serve(handle: Callable[[Any], Any], *, sized: bool = False) -> None:
    """Answer the parent's requests with `handle(request)`; with `sized` the replies, objects, get `memory_mb` (MiB)."""
    (sock,) = inherited_sockets()
    with contextlib.suppress(EOFError):
        while True:
            reply = handle(read_frame(sock))
            if sized:  # what getrusage says may be the size of the parent, whose memory a child shares while it starts
                with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow to import
                    reply = {
                        **reply,
                        "memory_mb": int(file.read().split()[1]) * resource.getpagesize() // 2**20,
                    }
            write_frame(sock, reply)


def encode(payload: Any) -> bytes:
    """Return the frame of a JSON value; ValueError when it is over `MAX_FRAME` bytes."""
    # Escaping to ASCII carries lone surrogates, which UTF-8 cannot.
    if len(body := json.dumps(payload).encode("ascii")) > MAX_FRAME:
        raise ValueError(f"the frame is {len(body)} bytes long; at most {MAX_FRAME} are allowed")
    return _LENGTH.pack(len(body)) + body


def read_exactly(sock: socket.socket, size: int, until: float | None) -> bytes:
    """Receive so many bytes until the `time.monotonic()` value `until`; EOFError, TimeoutError and OSError else."""
    data = bytearray()
    while len(data) < size:
        if until is not None:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError("the deadline has passed")
            sock.settimeout(left)
        if not (piece := sock.recv(min(size - len(data), 2**20))):
            raise EOFError("the stream has ended")
        data += piece
    return bytes(data)


def pair(*, senders: bool = False) -> tuple[socket.socket, socket.socket]:
    """Return two ends of a packet connection; with `senders` the kernel tells the first one who sent each message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, senders)
    return ours, theirs


def send(sock: socket.socket, message: dict[str, Any] | bytes, fds: Sequence[int] = ()) -> None:
    """Send one packet, of an object or its JSON; raises OSError when nobody can receive it."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    rights = (
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    )
    sock.sendmsg([body], rights)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one packet and its descriptors; raises EOFError, TimeoutError, and ValueError for no JSON object."""
    return receive_from(sock)[:2]


def receive_from(sock: socket.socket) -> tuple[dict[str, Any], list[int], int]:
    """Receive one packet, its descriptors and the number of the process that sent it, 0 without `senders`."""
    body, ancillary, flags, _ = sock.recvmsg(PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
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
            message = json.loads(body.decode())
        except RecursionError:
            message = None
        if flags & _CUT or not isinstance(message, dict):
            raise ValueError("not a message")
    except BaseException:
        close(*fds)
        raise
    return message, fds, sender


def report(fd: int, kind: int, value: int = 0) -> None:
    """Write a report onto an exit pipe; it does not matter whether anyone still reads."""
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, _REPORT.pack(kind, value))


def reports(fd: int) -> list[tuple[int, int]]:
    """Read the reports that are there; an empty list at the end of the exit pipe."""
    return list(_REPORT.iter_unpack(os.read(fd, _REPORT.size * 16)))


def wait(fd: int | socket.socket, timeout: float) -> bool:
    """Return whether `fd` is readable, or at its end, within `timeout` seconds."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, timeout) * 1000))


def limit(kind: int, most: int, pid: int = 0) -> None:
    """Set a limit of a process of this user, 0 being this one, not above its present hard limit."""
    _, hard = resource.prlimit(pid, kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.prlimit(pid, kind, (most, most))


def close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
