"""A killable child process that answers requests over a socket.

A frame is a 4-byte big-endian length and that many bytes of JSON. The child inherits one socket and nothing else of the
parent: no other descriptor, no environment but a few keys. Deadlines are kept by waiting on the socket, never by
signals, so every method works from any thread. The child-side half (`serve`, the frames) imports nothing heavy.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

MAX_FRAME = 8 * 2**20
_LENGTH = struct.Struct(">I")


class Deadline(RuntimeError):
    """The child did not answer in time; it has been killed."""


class Died(RuntimeError):
    """The child ended, or answered with something that is no frame; it has been killed and reaped."""


def write_frame(sock: socket.socket, payload: Any, fds: Sequence[int] = ()) -> None:
    """Send a JSON value, with open descriptors if any; ValueError when it is over `MAX_FRAME` bytes."""
    _send(sock, _encode(payload), fds)


def read_frame(sock: socket.socket, until: float | None = None) -> Any:
    """Receive a JSON value, waiting until the `time.monotonic()` value `until`.

    Raises EOFError at the end of the stream, TimeoutError, OSError, and ValueError for what is no frame.
    """
    return _read_body(sock, _read_exactly(sock, _LENGTH.size, until), until)


def read_frame_with_fds(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a JSON value and the descriptors sent with it; for the child's side only, which trusts its parent."""
    header, fds, _, _ = socket.recv_fds(sock, _LENGTH.size, 4)
    for fd in fds:
        os.set_inheritable(fd, False)
    if not header:
        raise EOFError("the stream has ended")
    return _read_body(sock, header + _read_exactly(sock, _LENGTH.size - len(header), None), None), fds


def inherited_socket() -> socket.socket:
    """The socket to the parent, in a child that `Child` started."""
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.set_inheritable(False)
    return sock


def serve(handle: Callable[[Any], Any]) -> None:
    """The main loop of a child: answer each request with `handle(request)` until the parent goes away."""
    sock = inherited_socket()
    with contextlib.suppress(EOFError):
        while True:
            write_frame(sock, handle(read_frame(sock)))


class Child:
    """A child process in a process group of its own; it ends with this object, or with the parent.

    `argv` gets the number of the inherited socket as its last argument. Requests of several threads are answered one
    after another. Raises OSError when the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], *, cwd: str = "/", env: Mapping[str, str] | None = None) -> None:
        self._asking, self._killing = threading.Lock(), threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the finalizer
        # Appending lets the parent empty the file while the child writes to it.
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)
        self._socket, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [*argv, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd=cwd,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **(env or {})},
                start_new_session=True,
            )
        except OSError:
            _release(self._socket, self._errors)
            raise
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._process, self._socket, self._errors)
        _living.add(self)

    @property
    def alive(self) -> bool:
        """False once the child was found dead or was killed."""
        return self._process.returncode is None

    def request(self, payload: Any, deadline: float, fds: Sequence[int] = ()) -> Any:
        """Send a request and return the reply, within `deadline` seconds of its being sent.

        Raises `Deadline` or `Died`; both leave the child dead, since a late reply would answer the wrong request.
        A payload that is too large or has no JSON form raises ValueError or TypeError and is not sent.
        """
        with self._asking:
            if not self.alive:
                raise Died("the child has already ended")
            frame = _encode(payload)
            until = time.monotonic() + deadline
            try:
                self._errors.truncate(0)
                self._socket.settimeout(deadline)
                _send(self._socket, frame, fds)
                return read_frame(self._socket, until)
            except TimeoutError:
                self.kill()
                raise Deadline(f"the child did not answer within {deadline:g} s") from None
            except (EOFError, OSError, ValueError, RecursionError) as error:
                self.kill()
                code = self._process.returncode
                raise Died(f"the child ended (exit code {code}): {error}; {self._last_words()}") from None
            except BaseException:  # such as Ctrl-C: the reply, still to come, would answer the next request
                self.kill()
                raise

    def kill(self) -> None:
        """Kill the child's process group and reap the child; a request under way in another thread raises `Died`.

        A child that is being closed is left to end by itself, since it may have processes of its own to end first.
        """
        if not self._finalizer.alive:
            return
        with self._killing:
            _kill(self._process)
            # Not closed: another thread may be reading, and would go on with whatever gets the number next.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the child end by itself, kill it if it does not within 3 seconds, and release everything."""
        self._finalizer()

    def _last_words(self) -> str:
        if self._errors.closed:
            return "it was closed"
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip() or "it wrote no error message"

    def _disown(self) -> None:
        self._finalizer.detach()
        self._asking, self._killing = threading.Lock(), threading.Lock()  # their holders are not in this process
        self._process.returncode = 0
        _release(self._socket, self._errors)


_living: "weakref.WeakSet[Child]" = weakref.WeakSet()


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Nothing else reaps the child, so until then the number of its group cannot have passed to another.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end(process: subprocess.Popen[bytes], sock: socket.socket, errors: IO[bytes]) -> None:
    # The child sees the end of its stream; its own end of the socket closes when it exits.
    with contextlib.suppress(EOFError, OSError):
        sock.shutdown(socket.SHUT_WR)
        _read_exactly(sock, MAX_FRAME, time.monotonic() + 3.0)
    _kill(process)
    _release(sock, errors)


def _release(sock: socket.socket, errors: IO[bytes]) -> None:
    sock.close()
    errors.close()


def _disown_all() -> None:
    # A fork of the parent owns none of its children: it must not end them, nor keep their sockets open.
    for child in list(_living):
        child._disown()


os.register_at_fork(after_in_child=_disown_all)


def _encode(payload: Any) -> bytes:
    # Escaping to ASCII carries lone surrogates, which UTF-8 cannot.
    body = json.dumps(payload).encode("ascii")
    if len(body) > MAX_FRAME:
        raise ValueError(f"the frame is {len(body)} bytes long; at most {MAX_FRAME} are allowed")
    return _LENGTH.pack(len(body)) + body


def _send(sock: socket.socket, frame: bytes, fds: Sequence[int]) -> None:
    sent = socket.send_fds(sock, [frame], fds) if fds else 0
    sock.sendall(memoryview(frame)[sent:])


def _read_body(sock: socket.socket, header: bytes, until: float | None) -> Any:
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME:
        raise ValueError(f"the frame claims {length} bytes; at most {MAX_FRAME} are allowed")
    return json.loads(_read_exactly(sock, length, until))


def _read_exactly(sock: socket.socket, size: int, until: float | None) -> bytes:
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
