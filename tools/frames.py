"""Requests and replies between a parent and its child: frames over a socket, and the loop of a child that answers them.

A frame is a 4-byte big-endian length and that many bytes of JSON. This file runs by itself too, in children that import
nothing of the package, and imports nothing heavy.
"""

import contextlib
import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

MAX_FRAME = 8 * 2**20
_LENGTH = struct.Struct(">I")


def write_frame(sock: socket.socket, payload: Any, fds: Sequence[int] = ()) -> None:
    """Send a JSON value, with open descriptors if any; ValueError when it is over `MAX_FRAME` bytes."""
    send(sock, encode(payload), fds)


def read_frame(sock: socket.socket, until: float | None = None) -> Any:
    """Receive a JSON value, waiting until the `time.monotonic()` value `until`.

    Raises EOFError at the end of the stream, TimeoutError, OSError, and ValueError for what is no frame.
    """
    return _read_body(sock, read_exactly(sock, _LENGTH.size, until), until)


def read_frame_with_fds(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a JSON value and the descriptors sent with it; for the child's side only, which trusts its parent."""
    header, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 16)
    for fd in fds:
        os.set_inheritable(fd, False)
    if not header:
        raise EOFError("the stream has ended")
    return _read_body(sock, header + read_exactly(sock, _LENGTH.size - len(header), None), None), fds


def inherited_socket() -> socket.socket:
    """Return the socket to the parent, in a child that `Child` started."""
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.set_inheritable(False)
    return sock


def serve(handle: Callable[[Any], Any], *, sized: bool = False) -> None:
    """Answer each request of the parent with `handle(request)` until it goes away.

    With `sized`, the replies are objects and get the resident size of this process (MiB) as `memory_mb`.
    """
    sock = inherited_socket()
    with contextlib.suppress(EOFError):
        while True:
            reply = handle(read_frame(sock))
            write_frame(sock, {**reply, "memory_mb": _resident_mb()} if sized else reply)


def _resident_mb() -> int:
    # What getrusage says may be the size of the parent, with which a child shares its memory while it starts.
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow to import
            return int(file.read().split()[1]) * resource.getpagesize() // 2**20
    except OSError:  # no /proc
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10


def encode(payload: Any) -> bytes:
    """Return the frame of a JSON value; ValueError when it is over `MAX_FRAME` bytes."""
    # Escaping to ASCII carries lone surrogates, which UTF-8 cannot.
    body = json.dumps(payload).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ValueError(f"the frame is {len(body)} bytes long; at most {MAX_FRAME} are allowed")
    return _LENGTH.pack(len(body)) + body


def send(sock: socket.socket, frame: bytes, fds: Sequence[int]) -> None:
    """Send a frame, with open descriptors if any."""
    sent = socket.send_fds(sock, [frame], fds) if fds else 0
    sock.sendall(memoryview(frame)[sent:])


def _read_body(sock: socket.socket, header: bytes, until: float | None) -> Any:
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME:
        raise ValueError(f"the frame claims {length} bytes; at most {MAX_FRAME} are allowed")
    return json.loads(read_exactly(sock, length, until))


def read_exactly(sock: socket.socket, size: int, until: float | None) -> bytes:
    """Receive so many bytes until the `time.monotonic()` value `until`; EOFError, TimeoutError and OSError else."""
    data = bytearray()
    while len(data) < size:
        if until is not None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the deadline has passed")
            sock.settimeout(left)
        piece = sock.recv(min(size - len(data), 2**20))
        if not piece:
            raise EOFError("the stream has ended")
        data += piece
    return bytes(data)
