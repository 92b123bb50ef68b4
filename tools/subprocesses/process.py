"""Child processes that answer requests, with limits and deadlines: one, or a pool of them.

A child answers requests over a socket, and inherits nothing else of the parent but a few keys of the environment.
Deadlines are kept by waiting on the socket, never by signals, so every method works from any thread.
"""

import contextlib
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from . import messages
from .deadlines import start

START_SECONDS = 60.0  # until a worker of a pool must be ready
CPU_SECONDS = 3600  # of such a worker, so that one whose parent was killed in the middle of an answer ends some day


class Deadline(RuntimeError):
    """The child did not answer in time; it has been killed."""


class Died(RuntimeError):
    """The child ended, or answered with something that is no frame; it has been killed and reaped."""


class StartFailure(RuntimeError):
    """No worker could be started; it is nobody's request that failed."""


class Child:
    """A child process in a process group of its own; it ends with this object, or with the parent.

    `argv` gets the numbers of the descriptors that it inherits: those in `fds`, and the socket of requests. Requests of
    several threads are answered one after another. It leaves no core. `memory_mb` (MiB of address space) and
    `cpu_seconds` limit each of its processes before the first request. Raises OSError when it cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        memory_mb: int | None = None,
        cpu_seconds: int | None = None,
    ) -> None:
        with _starting:
            self._start(argv, cwd, env, fds)
        size = memory_mb and memory_mb * 2**20
        with contextlib.suppress(
            ProcessLookupError
        ):  # it has ended already, which the first request reports
            for kind, most in (
                (resource.RLIMIT_CORE, 0),
                (resource.RLIMIT_AS, size),
                (resource.RLIMIT_CPU, cpu_seconds),
            ):
                if most is not None:
                    messages.limit(kind, most, self.pid)

    def _start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str] | None, fds: Sequence[int]
    ) -> None:
        self._asking, self._killing = threading.Lock(), threading.Lock()
        self._signalled = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the finalizer
        # Appending lets the parent empty the file while the child writes to it.
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)
        self._socket, theirs = socket.socketpair()
        fds = [*fds, theirs.fileno()]
        try:
            self._process = subprocess.Popen(
                [*argv, *map(str, fds)],
                pass_fds=fds,
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
        self.pid = self._process.pid
        self._finalizer = weakref.finalize(self, _end, self._process, self._socket, self._errors)
        _living.add(self)

    @property
    def alive(self) -> bool:
        """False once the child has ended or was killed."""
        try:  # it is not reaped, so that the number of its group stays its own until the group is killed
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # another thread has just reaped it
            return False
        return self._usable and ended is None

    @property
    def _usable(self) -> bool:
        return self._process.returncode is None and not self._signalled

    def request(self, payload: Any, deadline: float, *, reap: bool = True) -> Any:
        """Send a request and return the reply, within `deadline` seconds of its being sent.

        Raises `Deadline` or `Died`; both leave the child dead, since a late reply would answer the wrong request. With
        `reap=False` nothing waits for the end of a late child, and the caller has to call `kill` or `close` afterwards.
        A payload that is too large or has no JSON form raises ValueError or TypeError and is not sent.
        """
        with self._asking:
            if not self._usable:
                raise Died("the child has already ended")
            frame, until = messages.encode(payload), time.monotonic() + deadline
            try:
                self._socket.settimeout(deadline)
                self._socket.sendall(frame)
                reply = messages.read_frame(self._socket, until)
                self._errors.truncate(
                    0
                )  # not before a request: why a child ended at its start is in it
                return reply
            except TimeoutError:
                self.kill(reap=reap)
                raise Deadline(f"the child did not answer within {deadline:g} s") from None
            except (EOFError, OSError, ValueError, RecursionError) as error:
                self.kill()
                code = self._process.returncode
                raise Died(
                    f"the child ended (exit code {code}): {error}; {self._stderr_tail()}"
                ) from None
            except (
                BaseException
            ):  # such as Ctrl-C: the reply, still to come, would answer the next request
                self.kill()
                raise

    def kill(self, *, reap: bool = True) -> None:
        """Kill the child's process group and reap the child; a request under way in another thread raises `Died`.

        With `reap=False` nothing waits for its end, and the caller has to call `kill` or `close` afterwards. A child
        that is being closed is left to end by itself, since it may have processes of its own to end first.
        """
        if not self._finalizer.alive:
            return
        with self._killing:
            self._signalled = True
            _signal_end(self._process)
            if not reap:
                return
            self._process.wait()
            # Not closed: another thread may be reading, and would go on with whatever gets the number next.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the child end by itself, kill it if it does not within 3 seconds, and release everything."""
        self._finalizer()

    def _stderr_tail(self) -> str:
        if self._errors.closed:
            return "it was closed"
        self._errors.seek(0)
        return (
            self._errors.read()[-2000:].decode(errors="replace").strip()
            or "it wrote no error message"
        )

    def _disown(self) -> None:
        self._finalizer.detach()
        self._asking, self._killing = (
            threading.Lock(),
            threading.Lock(),
        )  # their holders are not in this process
        self._process.returncode = 0
        _release(self._socket, self._errors)


class Pool:
    """Processes that run a script and answer requests, JSON objects all, from any thread and after a fork.

    Workers start when they are needed; one that was late, died, has answered often or has grown is replaced.
    `script` gets the path of the file with `serve`, and answers `{}` when it is ready. Its replies say in `memory_mb`
    how large it is, if it calls `serve` with `sized`. There are `size` workers at most, as many as the machine has
    cores, up to 4, when left out, each with `memory_mb` MiB of address space. One is replaced after so many `answers`,
    or with a resident size above `grown_mb` MiB.
    """

    def __init__(
        self,
        script: Path,
        *,
        size: int | None = None,
        answers: int = 500,
        memory_mb: int = 2048,
        grown_mb: int = 512,
    ) -> None:
        self.script, self.answers, self.memory_mb, self.grown_mb = (
            script,
            answers,
            memory_mb,
            grown_mb,
        )
        self.size = min(4, os.cpu_count() or 1) if size is None else size
        if self.size < 1 or answers < 1:
            raise ValueError(
                f"a pool of {self.size} workers with {answers} answers each; both must be at least 1"
            )
        self._disown()
        _living.add(self)

    def _disown(self) -> None:
        """Begin with no worker: what there was belongs to the process that this one was forked from."""
        self._places = threading.Semaphore(self.size)
        self._free: list[
            Callable[[], Child]
        ] = []  # each gives a worker, which may have to start first
        self._answered: dict[
            Child, int
        ] = {}  # how often each worker has answered that is ready or at work

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Return the reply of a worker, which has `deadline` seconds from when it gets the request.

        Raises StartFailure where no worker can be started, Deadline where it was late (it is killed), and Died.
        """
        with self._places:
            worker, again = self._take(), False
            try:
                reply: dict[str, Any] = worker.request(dict(request), deadline, reap=False)
                self._answered[worker] += 1
                again = (
                    reply.pop("memory_mb", 0) <= self.grown_mb
                    and self._answered[worker] < self.answers
                )
                return reply
            except (
                ValueError,
                TypeError,
            ):  # the request cannot be sent; the worker has not seen it
                again = True
                raise
            finally:
                if again:
                    self._free.append(lambda: worker)
                else:
                    del self._answered[worker]
                    with contextlib.suppress(
                        RuntimeError
                    ):  # no thread can start, and the next request finds none
                        self._free.insert(
                            0,
                            start(partial(self._begin, worker), f"start {self.script.name}").result,
                        )

    def close(self) -> None:
        """End all workers but those at work; the next request starts a new one."""
        while self._free:
            with contextlib.suppress(
                Exception
            ):  # it could not start, or another thread has taken it
                worker = self._free.pop()()
                del self._answered[worker]
                worker.close()

    def _take(self) -> Child:
        """Return a free worker that lives, or a new one."""
        while self._free:
            with contextlib.suppress(
                Exception
            ):  # it could not start, or another thread has taken it
                if (worker := self._free.pop()()).alive:
                    return worker
                del self._answered[worker]
                worker.close()
        try:
            return self._begin()
        except Exception as error:
            raise StartFailure(f"{self.script.name} cannot start: {error}") from None

    def _begin(self, old: Child | None = None) -> Child:
        """Return a new worker that is ready, after the end of `old`."""
        if old is not None:
            old.close()
        command = [sys.executable, "-I", str(self.script), messages.__file__]
        worker = Child(command, memory_mb=self.memory_mb, cpu_seconds=CPU_SECONDS)
        worker.request({}, START_SECONDS)
        self._answered[worker] = 0
        return worker


_living: weakref.WeakSet[Child | Pool] = weakref.WeakSet()
# A process that is forked off in the middle of a start would keep a socket that it cannot know of.
_starting = threading.RLock()


def _signal_end(process: subprocess.Popen[bytes]) -> None:
    # Nothing else reaps the child, so until then the number of its group cannot have passed to another.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
            os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], sock: socket.socket, errors: IO[bytes]) -> None:
    # The child sees the end of its stream; its own end of the socket closes when it exits.
    with contextlib.suppress(EOFError, OSError):
        sock.shutdown(socket.SHUT_WR)
        messages.read_exactly(sock, messages.MAX_FRAME, time.monotonic() + 3.0)
    _signal_end(process)
    process.wait()
    _release(sock, errors)


def _release(sock: socket.socket, errors: IO[bytes]) -> None:
    sock.close()
    errors.close()


def _disown_all() -> None:
    # A fork of the parent owns none of its children: it must not end them, nor keep their sockets open.
    for one in list(_living):
        one._disown()


os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)
os.register_at_fork(after_in_child=_disown_all)
