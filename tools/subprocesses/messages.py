"""Messages between processes: JSON values, as frames on a stream or as packets.

A frame is a length (4 bytes, big-endian) and that many bytes of JSON; `serve` is the loop of a
child that answers frames. A packet is sent and received as a whole, together with the file
descriptors that it carries. Any number of threads may send and receive packets on one socket, and
what a program writes to a descriptor that it finds open is one more packet, not a break in a
stream.

This file also runs by itself, in children that import nothing of the package; it imports nothing
heavy.
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
from typing import Any, NamedTuple

MAX_FRAME = 8 * 2**20  # bytes of the JSON in a frame
MAX_PACKET = 4096  # bytes of a packet at most
# Kinds of reports on an exit pipe.
EXIT = 0  # the worker has ended; the value is its wait status
MEMORY = 1  # the boundary is ended because of its memory

_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_REPORT = struct.Struct("=Bi")  # kind, value
_MAX_DESCRIPTORS = 6  # in a packet
_ANCILLARY_SIZE = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
# Flags of a packet whose message or descriptors did not fit and were cut off.
_TRUNCATED = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)


# --- frames


def write_frame(sock: socket.socket, payload: Any) -> None:
    """Send a JSON value as a frame; raises ValueError if it has more than `MAX_FRAME` bytes."""
    sock.sendall(encode_frame(payload))


def read_frame(sock: socket.socket, until: float | None = None) -> Any:
    """Receive a frame and return its JSON value.

    Args:
        sock: A stream socket.
        until: The deadline as a value of `time.monotonic()`; None for no limit.

    Raises:
        EOFError: The stream has ended.
        TimeoutError: The deadline has passed.
        OSError: The socket fails.
        ValueError: The frame is too large, or is not JSON.
    """
    (length,) = _LENGTH.unpack(read_exactly(sock, _LENGTH.size, until))
    if length > MAX_FRAME:
        raise ValueError(f"the frame claims {length} bytes; at most {MAX_FRAME} are allowed")
    return json.loads(read_exactly(sock, length, until))


def encode_frame(payload: Any) -> bytes:
    """Return the frame of a JSON value; raises ValueError if it has more than `MAX_FRAME` bytes."""
    # `json.dumps` escapes everything but ASCII, also lone surrogates, which UTF-8 cannot encode.
    body = json.dumps(payload).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ValueError(f"the frame is {len(body)} bytes long; at most {MAX_FRAME} are allowed")
    return _LENGTH.pack(len(body)) + body


def read_exactly(sock: socket.socket, size: int, until: float | None) -> bytes:
    """Receive exactly `size` bytes from a stream.

    Args:
        sock: A stream socket.
        size: The number of bytes.
        until: The deadline as a value of `time.monotonic()`; None for no limit.

    Raises:
        EOFError: The stream has ended.
        TimeoutError: The deadline has passed.
        OSError: The socket fails.
    """
    data = bytearray()
    while len(data) < size:
        if until is not None:
            seconds_left = until - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError("the deadline has passed")
            sock.settimeout(seconds_left)
        chunk = sock.recv(min(size - len(data), 2**20))
        if not chunk:
            raise EOFError("the stream has ended")
        data += chunk
    return bytes(data)


def inherited_sockets(number: int = 1) -> list[socket.socket]:
    """Return the sockets that the parent's `Child` passed to this process.

    Their file descriptors are the last `number` arguments of the command line. The last socket is
    the one on which the parent sends requests. Processes that this one starts do not inherit them.
    """
    sockets = [socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[-number:]]
    for sock in sockets:
        sock.set_inheritable(False)
    return sockets


def serve(handle: Callable[[Any], Any], *, sized: bool = False) -> None:
    """Run the main loop of a child: answer the parent's requests until it closes the stream.

    Args:
        handle: Makes the reply to a request; both are JSON values.
        sized: Add the resident memory of this process in MiB to each reply, which must be a dict,
            under the key `memory_mb`.
    """
    (parent,) = inherited_sockets()
    with contextlib.suppress(EOFError):
        while True:
            reply = handle(read_frame(parent))
            if sized:
                reply = {**reply, "memory_mb": _resident_mib()}
            write_frame(parent, reply)


def _resident_mib() -> int:
    """Return the resident memory of this process in MiB."""
    # Not from `getrusage`: its peak may be that of the parent, whose memory a child shares while it
    # starts. `open` is used because pathlib is slow to import.
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        resident_pages = int(file.read().split()[1])
    return resident_pages * resource.getpagesize() // 2**20


# --- packets


class Packet(NamedTuple):
    """A packet that was received.

    Args:
        message: Its JSON object.
        fds: The file descriptors that it carried, which the receiver has to close.
        sender: The id of the process that sent it; 0 unless the socket was made with `senders`.
    """

    message: dict[str, Any]
    fds: list[int]
    sender: int


def packet_pair(*, senders: bool = False) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a packet connection.

    Args:
        senders: Whether the kernel adds the id of the sending process to each packet that arrives
            at the first end.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, senders)
    return ours, theirs


def send_packet(
    sock: socket.socket, message: dict[str, Any] | bytes, fds: Sequence[int] = ()
) -> None:
    """Send one packet.

    Args:
        sock: An end of a packet connection.
        message: The object, or its JSON.
        fds: File descriptors of which the receiver gets copies.

    Raises:
        OSError: Nobody can receive it.
    """
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    ancillary = []
    if fds:
        descriptors = struct.pack(f"{len(fds)}i", *fds)
        ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors))
    sock.sendmsg([body], ancillary)


def receive_packet(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one packet; returns its JSON object and the file descriptors that it carried.

    The errors are those of `receive_packet_with_sender`.
    """
    packet = receive_packet_with_sender(sock)
    return packet.message, packet.fds


def receive_packet_with_sender(sock: socket.socket) -> Packet:
    """Receive one packet with the file descriptors that it carries and the id of its sender.

    Raises:
        EOFError: The other end is closed.
        TimeoutError: The socket's timeout has passed.
        ValueError: The packet is no JSON object, or was too large. The file descriptors that it
            carried are closed.
    """
    body, ancillary, flags, _ = sock.recvmsg(MAX_PACKET, _ANCILLARY_SIZE, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    sender = 0
    for _level, data_type, data in ancillary:
        if data_type == socket.SCM_RIGHTS:
            # Descriptors are C ints of 4 bytes. If there were too many, the last may be cut.
            whole_ints = memoryview(data)[: len(data) // 4 * 4]
            fds += whole_ints.cast("i")
        else:
            sender, _uid, _gid = _CREDENTIALS.unpack(data)
    try:
        if not body:
            raise EOFError("the other end is gone")
        try:
            message = json.loads(body.decode())
        except RecursionError:  # it is nested too deeply, so it is no message of ours
            message = None
        if flags & _TRUNCATED or not isinstance(message, dict):
            raise ValueError("not a message")
    except BaseException:
        close_descriptors(*fds)
        raise
    return Packet(message, fds, sender)


# --- exit pipes, and calls of the system that children need as well


def write_exit_report(fd: int, kind: int, value: int = 0) -> None:
    """Write a report to an exit pipe, whether or not anyone still reads it.

    Args:
        fd: The writing end of the pipe.
        kind: `EXIT` or `MEMORY`.
        value: Of `EXIT`, the worker's wait status.
    """
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, _REPORT.pack(kind, value))


def read_exit_reports(fd: int) -> list[tuple[int, int]]:
    """Read the reports that are in an exit pipe; an empty list at its end.

    Args:
        fd: The reading end of the pipe.

    Returns:
        Pairs of the kind, `EXIT` or `MEMORY`, and the value, which is a wait status for `EXIT`.
    """
    return list(_REPORT.iter_unpack(os.read(fd, _REPORT.size * 16)))


def wait_until_readable(fd: int | socket.socket, timeout: float) -> bool:
    """Wait up to `timeout` seconds; return whether `fd` is readable or at its end by then."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, timeout) * 1000))


def set_resource_limit(kind: int, most: int, pid: int = 0) -> None:
    """Set a resource limit of a process of this user, but not above its present hard limit.

    Args:
        kind: One of `resource.RLIMIT_*`.
        most: The soft and the hard limit.
        pid: The id of the process; 0 is this one.
    """
    limit = most
    _, present_hard_limit = resource.prlimit(pid, kind)
    if present_hard_limit != resource.RLIM_INFINITY:
        limit = min(most, present_hard_limit)
    resource.prlimit(pid, kind, (limit, limit))


def close_descriptors(*fds: int) -> None:
    """Close file descriptors."""
    for fd in fds:
        os.close(fd)
