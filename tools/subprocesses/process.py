"""Child processes that answer requests, with limits and deadlines: one, or a pool of them.

A child answers requests over a socket. From the parent's environment it inherits only `PATH`.
Deadlines are enforced by timeouts of the socket and not by signals, so every method works from any
thread.
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
# The CPU time of a worker of a pool is limited so that a worker whose parent was killed in the
# middle of a request ends some time.
WORKER_CPU_SECONDS = 3600
CLOSE_SECONDS = 3.0  # until a child that is closed must have ended by itself


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
        env: Environment variables besides `PATH` and `LANG`; it inherits no others.
        fds: File descriptors that it inherits.
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
        # If the child has ended already, the first request raises `Died`.
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
        self._stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the finalizer
        # Appending lets the parent empty the file while the child writes to it.
        fcntl.fcntl(self._stderr_file, fcntl.F_SETFL, os.O_APPEND)
        self._socket, childs_socket = socket.socketpair()
        inherited_fds = [*fds, childs_socket.fileno()]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}
        environment.update(env or {})
        try:
            self._process = subprocess.Popen(
                [*argv, *map(str, inherited_fds)],
                pass_fds=inherited_fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr_file,
                cwd=cwd,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            _close_files(self._socket, self._stderr_file)
            raise
        finally:
            childs_socket.close()
        self.pid = self._process.pid
        # Ends the child when this object is closed or garbage-collected, or this process exits.
        self._finalizer = weakref.finalize(
            self, _end_child, self._process, self._socket, self._stderr_file
        )
        _disowned_after_fork.add(self)

    @property
    def alive(self) -> bool:
        """Whether the child runs; False once it has ended or was killed."""
        try:
            # WNOWAIT does not reap a child that has ended. Its process group is killed later, and
            # no other process may get the group's id until then.
            exit_info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # another thread has just reaped it
            return False
        return self._is_usable and exit_info is None

    @property
    def _is_usable(self) -> bool:
        """Whether requests can be sent; False once this process has killed or reaped the child."""
        return self._process.returncode is None and not self._killed

    def request(self, payload: Any, deadline: float, *, reap: bool = True) -> Any:
        """Send a request and return the reply.

        Args:
            payload: The request, a JSON value.
            deadline: Timeout in seconds for sending the request and receiving the reply.
            reap: Whether to wait until a child that is killed after a timeout has ended. If False,
                the caller has to call `kill` or `close` afterwards.

        Raises:
            Deadline: The child did not reply in time. It has been killed, because the next request
                would receive its late reply.
            Died: The child ended, or its reply is no frame. It has been killed.
            ValueError: The payload is too large; it was not sent.
            TypeError: The payload has no JSON form; it was not sent.
        """
        with self._request_lock:
            if not self._is_usable:
                raise Died("the child has already ended")
            frame = messages.encode_frame(payload)
            until = time.monotonic() + deadline
            try:
                self._socket.settimeout(deadline)
                self._socket.sendall(frame)
                reply = messages.read_frame(self._socket, until)
                # Emptied after a reply and not before a request, so that the message of `Died`
                # contains the errors of a child that failed to start.
                self._stderr_file.truncate(0)
                return reply
            except TimeoutError:
                self.kill(reap=reap)
                raise Deadline(f"the child did not answer within {deadline:g} s") from None
            except (EOFError, OSError, ValueError, RecursionError) as error:
                self.kill()
                exit_code = self._process.returncode
                raise Died(
                    f"the child ended (exit code {exit_code}): {error}; {self._read_stderr_tail()}"
                ) from None
            except BaseException:
                # Ctrl-C, for instance. The next request would receive the reply to this one.
                self.kill()
                raise

    def kill(self, *, reap: bool = True) -> None:
        """Kill the child's process group and reap the child.

        A request for which another thread waits raises `Died`. Nothing is done if `close` was
        called: the child then ends by itself, as it may have to end its own processes first.

        Args:
            reap: Whether to wait until the child has ended. If False, the caller has to call `kill`
                or `close` afterwards.
        """
        is_closed = not self._finalizer.alive
        if is_closed:
            return
        with self._kill_lock:
            self._killed = True
            _kill_group(self._process)
            if not reap:
                return
            self._process.wait()
            # The socket is shut down but not closed: another thread may be reading from its
            # descriptor, and another file could get the same descriptor.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let the child end by itself, kill it after `CLOSE_SECONDS`, and close its files."""
        self._finalizer()

    def _read_stderr_tail(self) -> str:
        """Return the last 2,000 bytes that the child wrote to stderr, or why there are none."""
        if self._stderr_file.closed:
            return "it was closed"
        self._stderr_file.seek(0)
        tail = self._stderr_file.read()[-2000:].decode(errors="replace").strip()
        return tail or "it wrote no error message"

    def _disown(self) -> None:
        """Give up the child in a forked process, as it belongs to the parent of that process."""
        self._finalizer.detach()
        # A thread of the parent may have locked the old ones, and would never unlock them here.
        self._request_lock = threading.Lock()
        self._kill_lock = threading.Lock()
        self._process.returncode = 0  # as if it had been reaped: nothing waits for it or kills it
        _close_files(self._socket, self._stderr_file)


class Pool:
    """Worker processes that run a script and answer requests, from any thread and after a fork.

    Workers start when they are needed. A worker is replaced if it missed a deadline, died, has
    given `answers` answers or uses more memory than `grown_mb`.

    Args:
        script: The script. Its first argument is the path of the module with `serve`, which it has
            to call. It answers JSON objects with JSON objects, and `{}` with anything once it is
            ready. If it calls `serve` with `sized=True`, its memory is compared with `grown_mb`.
        size: The largest number of workers; by default the number of cores, but at most 4.
        answers: The number of answers after which a worker is replaced.
        memory_mb: The limit of a worker's address space in MiB.
        grown_mb: The resident memory in MiB above which a worker is replaced.
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
        """Begin with no workers; in a forked process they belong to the parent of that process."""
        # Each request that is being answered takes a slot, so no more than `size` workers are busy.
        self._request_slots = threading.Semaphore(self.size)
        # Each function returns a free worker, and waits for it if it is still starting.
        self._free_worker_getters: list[Callable[[], Child]] = []
        # The number of answers of each worker, free or busy.
        self._answer_counts: dict[Child, int] = {}

    def ask(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """Send a request to a free worker and return its reply.

        Args:
            request: A JSON object.
            deadline: Timeout in seconds for the reply. It does not include the wait for a free
                worker.

        Raises:
            StartFailure: No worker can be started.
            Deadline: The worker did not reply in time; it is killed.
            Died: The worker ended, or its reply is no frame.
            ValueError: The request is too large.
            TypeError: The request has no JSON form.
        """
        with self._request_slots:
            worker = self._take_worker()
            is_reusable = False
            try:
                reply: dict[str, Any] = worker.request(dict(request), deadline, reap=False)
                self._answer_counts[worker] += 1
                has_grown = reply.pop("memory_mb", 0) > self.grown_mb
                is_reusable = not has_grown and self._answer_counts[worker] < self.answers
                return reply
            except (ValueError, TypeError):
                # The request could not be encoded, so the worker did not get it.
                is_reusable = True
                raise
            finally:
                if is_reusable:
                    self._free_worker_getters.append(lambda: worker)
                else:
                    self._replace_worker(worker)

    def close(self) -> None:
        """End all workers that are free; the next request starts a new one."""
        while self._free_worker_getters:
            # An exception means that the worker could not start, or that another thread took the
            # last one in the meantime.
            with contextlib.suppress(Exception):
                get_worker = self._free_worker_getters.pop()
                self._end_worker(get_worker())

    def _take_worker(self) -> Child:
        """Return a free worker that is alive, or else start a new one.

        Raises:
            StartFailure: The new worker cannot be started.
        """
        while self._free_worker_getters:
            # An exception means that the worker could not start, or that another thread took the
            # last one in the meantime.
            with contextlib.suppress(Exception):
                get_worker = self._free_worker_getters.pop()
                worker = get_worker()
                if worker.alive:
                    return worker
                self._end_worker(worker)
        try:
            return self._start_worker()
        except Exception as error:
            raise StartFailure(f"{self.script.name} cannot start: {error}") from None

    def _replace_worker(self, worker: Child) -> None:
        """End a worker and start its successor on another thread, without waiting for either."""
        del self._answer_counts[worker]
        # If no thread can be started, the next request finds no free worker and starts one.
        with contextlib.suppress(RuntimeError):
            start_successor = partial(self._start_worker, predecessor=worker)
            future = start_thread(start_successor, f"start {self.script.name}")
            # Requests take the last getter first, so they prefer workers that are ready.
            self._free_worker_getters.insert(0, future.result)

    def _start_worker(self, predecessor: Child | None = None) -> Child:
        """Start a worker and wait until it is ready; its predecessor, if any, is closed first."""
        if predecessor is not None:
            predecessor.close()
        command = [sys.executable, "-I", str(self.script), messages.__file__]
        worker = Child(command, memory_mb=self.memory_mb, cpu_seconds=WORKER_CPU_SECONDS)
        worker.request({}, START_SECONDS)  # it answers once it is ready
        self._answer_counts[worker] = 0
        return worker

    def _end_worker(self, worker: Child) -> None:
        del self._answer_counts[worker]
        worker.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of a child, unless the child has been reaped."""
    # Until the child is reaped, no other process group can have the same id.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # another thread has just reaped it
            os.killpg(process.pid, signal.SIGKILL)


def _end_child(
    process: subprocess.Popen[bytes], sock: socket.socket, stderr_file: IO[bytes]
) -> None:
    """Let a child end by itself, kill it after `CLOSE_SECONDS`, reap it and close its files.

    It is the finalizer of a `Child`, so it must not refer to that object.
    """
    # The child reads the end of the stream and exits. Its end of the socket is then closed, so that
    # reading from this end raises EOFError.
    with contextlib.suppress(EOFError, OSError):
        sock.shutdown(socket.SHUT_WR)
        messages.read_exactly(sock, messages.MAX_FRAME, time.monotonic() + CLOSE_SECONDS)
    _kill_group(process)
    process.wait()
    _close_files(sock, stderr_file)


def _close_files(sock: socket.socket, stderr_file: IO[bytes]) -> None:
    sock.close()
    stderr_file.close()


# --- forks of the parent

# Forks wait while a child is started. Otherwise the forked process would inherit the new socket
# without a `Child` that could close it.
_start_lock = threading.RLock()
_disowned_after_fork: weakref.WeakSet[Child | Pool] = weakref.WeakSet()


def _disown_all() -> None:
    """Give up all children after a fork, in the forked process.

    They belong to its parent, so it must neither end them nor keep their sockets open.
    """
    for owner in list(_disowned_after_fork):
        owner._disown()


os.register_at_fork(
    before=_start_lock.acquire,
    after_in_parent=_start_lock.release,
    after_in_child=_start_lock.release,
)
os.register_at_fork(after_in_child=_disown_all)
