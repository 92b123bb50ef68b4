"""Child processes that answer requests, with limits and deadlines: one, or a pool of them.

A child answers requests over a socket, and inherits nothing else of the parent but a few keys of
the environment. Deadlines are kept by waiting on the socket, never by signals, so every method
works from any thread.
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
from .deadlines import start_thread

START_SECONDS = 60.0  # until a worker of a pool must be ready
# CPU time of a worker of a pool, so that one whose parent was killed in the middle of an answer
# ends some day.
CPU_SECONDS = 3600
CLOSE_SECONDS = 3.0  # that a child has to end by itself when it is closed


class Deadline(RuntimeError):
    """The child did not answer in time; it has been killed."""


class Died(RuntimeError):
    """The child ended, or its reply is no frame; it has been killed and reaped."""


class StartFailure(RuntimeError):
    """No worker could be started; it is nobody's request that failed."""


class Child:
    """A child process in its own process group, which answers requests.

    It ends with this object, or with the parent. Requests of several threads are answered one after
    another. It leaves no core dump.

    Args:
        argv: The command. It gets as further arguments the numbers of the descriptors that it
            inherits: those in `fds`, and last that of the socket of requests.
        cwd: Its working folder.
        env: Variables beside `PATH` and `LANG`; it inherits no others.
        fds: Descriptors that it inherits.
        memory_mb: MiB of address space of each of its processes, from the first request on.
        cpu_seconds: CPU time of each of its processes, from the first request on.

    Raises:
        OSError: It cannot be started.
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
        with _start_lock:
            self._start(argv, cwd, env, fds)
        # A child that has ended already is reported by the first request.
        with contextlib.suppress(ProcessLookupError):
            messages.set_resource_limit(resource.RLIMIT_CORE, 0, self.pid)
            if memory_mb is not None:
                messages.set_resource_limit(resource.RLIMIT_AS, memory_mb * 2**20, self.pid)
            if cpu_seconds is not None:
                messages.set_resource_limit(resource.RLIMIT_CPU, cpu_seconds, self.pid)

    def _start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str] | None, fds: Sequence[int]
    ) -> None:
        """Start the process; the arguments are those of the constructor."""
        self._request_lock = threading.Lock()
        self._kill_lock = threading.Lock()
        self._killed = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the finalizer
        # Appending lets the parent empty the file while the child writes to it.
        fcntl.fcntl(self._errors, fcntl.F_SETFL, os.O_APPEND)
        self._socket, child_socket = socket.socketpair()
        inherited = [*fds, child_socket.fileno()]
        search_path = os.environ.get("PATH", os.defpath)
        try:
            self._process = subprocess.Popen(
                [*argv, *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd=cwd,
                env={"PATH": search_path, "LANG": "C.UTF-8", **(env or {})},
                start_new_session=True,
            )
        except OSError:
            _close_files(self._socket, self._errors)
            raise
        finally:
            child_socket.close()
        self.pid = self._process.pid
        self._finalizer = weakref.finalize(
            self, _end_child, self._process, self._socket, self._errors
        )
        _disowned_after_fork.add(self)

    @property
    def alive(self) -> bool:
        """False once the child has ended or was killed."""
        try:
            # WNOWAIT: it is not reaped, so that no other process gets the number of its group
            # before the group is killed.
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # another thread has just reaped it
            return False
        return self._usable and ended is None

    @property
    def _usable(self) -> bool:
        """False once the child was killed or reaped by this process."""
        return self._process.returncode is None and not self._killed

    def request(self, payload: Any, deadline: float, *, reap: bool = True) -> Any:
        """Send a request and return the reply.

        Args:
            payload: The request, a JSON value.
            deadline: Seconds until the reply must be there, from the moment of sending.
            reap: Wait for the end of a child that is late. With False the caller has to call `kill`
                or `close` afterwards.

        Raises:
            Deadline: The child was late. It has been killed, since its late reply would answer the
                next request.
            Died: The child ended, or its reply is no frame. It has been killed.
            ValueError: The payload is too large; it was not sent.
            TypeError: The payload has no JSON form; it was not sent.
        """
        with self._request_lock:
            if not self._usable:
                raise Died("the child has already ended")
            frame = messages.encode_frame(payload)
            until = time.monotonic() + deadline
            try:
                self._socket.settimeout(deadline)
                self._socket.sendall(frame)
                reply = messages.read_frame(self._socket, until)
                # Emptied after a reply and not before a request: what a child writes when it fails
                # to start belongs in the message about its end.
                self._errors.truncate(0)
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
            except BaseException:
                # Ctrl-C, for instance: the reply that is still to come would answer the next
                # request.
                self.kill()
                raise

    def kill(self, *, reap: bool = True) -> None:
        """Kill the child's process group and reap the child.

        A request that another thread waits for raises `Died`. A child that is being closed is left
        to end by itself, since it may have to end its own processes first.

        Args:
            reap: Wait for its end. With False the caller has to call `kill` or `close` afterwards.
        """
        if not self._finalizer.alive:
            return
        with self._kill_lock:
            self._killed = True
            _kill_group(self._process)
            if not reap:
                return
            self._process.wait()
            # Not closed: another thread may be reading from it, and would go on to read from
            # whatever gets the descriptor next.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the child end by itself, kill it if it takes too long, and release everything."""
        self._finalizer()

    def _stderr_tail(self) -> str:
        """Return the end of what the child wrote to its standard error."""
        if self._errors.closed:
            return "it was closed"
        self._errors.seek(0)
        tail = self._errors.read()[-2000:].decode(errors="replace").strip()
        return tail or "it wrote no error message"

    def _disown(self) -> None:
        """Forget the child, in a process that was forked off: it belongs to the parent."""
        self._finalizer.detach()
        # The threads that may hold the locks are not in this process.
        self._request_lock = threading.Lock()
        self._kill_lock = threading.Lock()
        self._process.returncode = 0
        _close_files(self._socket, self._errors)


class Pool:
    """Processes that run a script and answer requests, from any thread and after a fork.

    Workers start when they are needed. A worker that was late or died, has answered often or has
    grown is replaced.

    Args:
        script: The script. It gets the path of the file with `serve`, answers JSON objects with
            JSON objects, and `{}` with anything once it is ready. If it calls `serve` with `sized`,
            its replies say how large it is.
        size: The largest number of workers; by default as many as the machine has cores, up to 4.
        answers: After so many answers a worker is replaced.
        memory_mb: MiB of address space of a worker.
        grown_mb: A worker with a larger resident size, in MiB, is replaced.
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
        self.script = script
        self.answers = answers
        self.memory_mb = memory_mb
        self.grown_mb = grown_mb
        self.size = min(4, os.cpu_count() or 1) if size is None else size
        if self.size < 1 or answers < 1:
            raise ValueError(
                f"a pool of {self.size} workers with {answers} answers each; "
                "both must be at least 1"
            )
        self._disown()
        _disowned_after_fork.add(self)

    def _disown(self) -> None:
        """Begin with no worker: after a fork, those of before belong to the parent."""
        self._slots = threading.Semaphore(self.size)  # one for each worker that may be at work
        # Each returns a free worker, and waits for it if it is still starting.
        self._free_workers: list[Callable[[], Child]] = []
        # How often each worker has answered, free or at work.
        self._answer_counts: dict[Child, int] = {}

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Return a worker's reply to a request.

        Args:
            request: A JSON object.
            deadline: Seconds until the reply must be there, from when a worker gets the request;
                the wait for a free worker does not count.

        Raises:
            StartFailure: No worker can be started.
            Deadline: The worker was late; it is killed.
            Died: The worker ended, or its reply is no frame.
        """
        with self._slots:
            worker = self._take_worker()
            is_reusable = False
            try:
                reply: dict[str, Any] = worker.request(dict(request), deadline, reap=False)
                self._answer_counts[worker] += 1
                has_grown = reply.pop("memory_mb", 0) > self.grown_mb
                is_reusable = not has_grown and self._answer_counts[worker] < self.answers
                return reply
            except (ValueError, TypeError):
                # The request cannot be sent, and the worker has not seen it.
                is_reusable = True
                raise
            finally:
                if is_reusable:
                    self._free_workers.append(lambda: worker)
                else:
                    self._replace_worker(worker)

    def close(self) -> None:
        """End all workers but those at work; the next request starts a new one."""
        while self._free_workers:
            # It could not start, or another thread has taken it.
            with contextlib.suppress(Exception):
                wait_for_worker = self._free_workers.pop()
                self._end_worker(wait_for_worker())

    def _take_worker(self) -> Child:
        """Return a free worker that is alive, or a new one; raises StartFailure."""
        while self._free_workers:
            # It could not start, or another thread has taken it.
            with contextlib.suppress(Exception):
                wait_for_worker = self._free_workers.pop()
                worker = wait_for_worker()
                if worker.alive:
                    return worker
                self._end_worker(worker)
        try:
            return self._start_worker()
        except Exception as error:
            raise StartFailure(f"{self.script.name} cannot start: {error}") from None

    def _replace_worker(self, worker: Child) -> None:
        """End a worker and start a new one in the background, so that nobody waits for it yet."""
        del self._answer_counts[worker]
        # If no thread can start, the next request finds no free worker and starts one.
        with contextlib.suppress(RuntimeError):
            future = start_thread(partial(self._start_worker, worker), f"start {self.script.name}")
            self._free_workers.insert(0, future.result)  # taken last, as it is still starting

    def _start_worker(self, predecessor: Child | None = None) -> Child:
        """Return a new worker that is ready; its predecessor is closed first."""
        if predecessor is not None:
            predecessor.close()
        command = [sys.executable, "-I", str(self.script), messages.__file__]
        worker = Child(command, memory_mb=self.memory_mb, cpu_seconds=CPU_SECONDS)
        worker.request({}, START_SECONDS)
        self._answer_counts[worker] = 0
        return worker

    def _end_worker(self, worker: Child) -> None:
        del self._answer_counts[worker]
        worker.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a child that was not reaped."""
    # Nothing else reaps the child, so until then no other process can have the number of its group.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
            os.killpg(process.pid, signal.SIGKILL)


def _end_child(process: subprocess.Popen[bytes], sock: socket.socket, errors: IO[bytes]) -> None:
    """Let a child end by itself, kill it if it takes too long, reap it and close its files.

    It refers to no `Child`, so that it can be the finalizer of one.
    """
    # The child sees the end of its stream and ends. When it exits, its own end of the socket
    # closes, and reading stops with EOFError.
    with contextlib.suppress(EOFError, OSError):
        sock.shutdown(socket.SHUT_WR)
        messages.read_exactly(sock, messages.MAX_FRAME, time.monotonic() + CLOSE_SECONDS)
    _kill_group(process)
    process.wait()
    _close_files(sock, errors)


def _close_files(sock: socket.socket, errors: IO[bytes]) -> None:
    sock.close()
    errors.close()


# --- forks of the parent

# A process that is forked while a child starts would keep open a socket of which it knows nothing.
_start_lock = threading.RLock()
_disowned_after_fork: weakref.WeakSet[Child | Pool] = weakref.WeakSet()


def _disown_all() -> None:
    """Give up all children in a process that was forked off.

    They belong to the parent: this process must neither end them nor keep their sockets open.
    """
    for owner in list(_disowned_after_fork):
        owner._disown()


os.register_at_fork(
    before=_start_lock.acquire,
    after_in_parent=_start_lock.release,
    after_in_child=_start_lock.release,
)
os.register_at_fork(after_in_child=_disown_all)
