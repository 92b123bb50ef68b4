"""Zygotes: warm interpreters that fork a worker for each request.

A zygote has imported what programs often import. There is one for each combination of the large
libraries (numpy, sympy), so that a worker for a program that needs none of them does not carry
their memory, which would double the cost of its fork.

`Zygote` and `start_zygote` are for the supervisor; everything else runs in the zygote's process.
"""

import contextlib
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import random
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...subprocesses import messages
from ..isolation import linux, seccomp
from ..isolation.file_view import HOME, PACKAGES_FOLDER
from .boundary import run_subreaper
from .sympy_exercise import exercise_sympy
from .worker import WorkerSpec, work

_NUMPY_RANDOM = "numpy.random"

# The modules of the standard library that every zygote imports.
_IMPORTS = (
    "bisect cmath collections contextlib copy csv dataclasses datetime decimal enum fractions "
    "functools heapq io itertools json math operator random re statistics string textwrap "
    "threading time typing warnings"
)
# The environment of programs, beside PATH, HOME and TMPDIR.
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "USER": "agent",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass
class Zygote:
    """A zygote as the supervisor knows it."""

    requests: socket.socket  # for requests to fork a worker, and replies
    pid: int = 0
    has_forked: bool = False  # whether it has ever forked a worker
    exit_reason: str = "it was killed"  # why it will have exited


def start_zygote(level: str, libraries: str) -> Zygote:
    """Fork this process, the supervisor, into a zygote.

    Args:
        level: The isolation level of its workers.
        libraries: What it preloads, such as "numpy+sympy".
    """
    supervisor_end, zygote_end = messages.packet_pair()
    supervisor_pid = os.getpid()
    zygote_pid = os.fork()
    if not zygote_pid:
        # It keeps its socket, as 3, and closes all other descriptors of the supervisor.
        requests = os.dup2(zygote_end.fileno(), 3)
        os.closerange(4, 1 << 16)
        _run_zygote(socket.socket(fileno=requests), level, libraries, supervisor_pid)
    zygote_end.close()
    return Zygote(supervisor_end, zygote_pid)


def _run_zygote(
    requests: socket.socket, level: str, libraries: str, supervisor_pid: int
) -> NoReturn:
    """Be a zygote: preload libraries, and fork workers for the supervisor.

    Args:
        requests: The zygote's end of the socket of requests.
        level: The isolation level of its workers.
        libraries: What it preloads, such as "numpy+sympy".
        supervisor_pid: The process that has forked this one.
    """
    own_pid = os.getpid()
    try:
        linux.die_with(supervisor_pid)
        # It has to know how its workers end, which the supervisor leaves to the kernel.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _warm_up(libraries)
        if level != "namespaces":  # there any interpreter finds the packages by itself
            package_folders = [path for path in sys.path if Path(path).name == PACKAGES_FOLDER]
            os.environ["PYTHONPATH"] = os.pathsep.join(package_folders)
        if level == "namespaces":
            os.environ["HOME"] = os.environ["TMPDIR"] = HOME
            # Its workers inherit the filter: installing one takes as long as their fork.
            seccomp.install(seccomp.build_filter(level))
        if level != "rlimits-only":
            # Its workers install this filter, and find it built.
            seccomp.sock_fprog(seccomp.build_last_filter(level))
        _WorkerForker(requests, level, libraries).serve()
    except BaseException as error:
        if own_pid == os.getpid():
            messages.send_packet(requests, {"failed": f"{type(error).__name__}: {error}"[:500]})
    finally:
        os._exit(1)  # also in its forks: nothing may return into the supervisor's code


class _WorkerForker:
    """The loop of a zygote, which forks workers on request and reaps them.

    Args:
        requests: The zygote's end of the socket of requests.
        level: The isolation level of the workers.
        libraries: What is preloaded, such as "numpy+sympy".
    """

    def __init__(self, requests: socket.socket, level: str, libraries: str) -> None:
        self.requests = requests
        self.level = level
        self.libraries = libraries
        # The exit pipe of the boundary, by the process that was forked for it.
        self.exit_pipes: dict[int, int] = {}
        mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
        self.mapped_bytes = mapped_pages * os.sysconf("SC_PAGE_SIZE")

    def serve(self) -> None:
        """Answer requests, and reap workers when they end; EOFError when the supervisor ends."""
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.requests.fileno():
                    worker_pidfd = self.answer_request()
                    if worker_pidfd is not None:
                        poll.register(worker_pidfd, select.POLLIN)
                else:  # the pidfd of a worker that has ended
                    poll.unregister(fd)
                    os.close(fd)
            self.reap_workers()

    def answer_request(self) -> int | None:
        """Receive a request of the supervisor, fork a worker, and reply with its process.

        Returns:
            A pidfd of the forked process, which becomes readable at its end; None if the fork
            failed.
        """
        message, fds = messages.receive_packet(self.requests)
        serial = message["serial"]
        # In the order in which `Supervisor.request_worker` sends them.
        control, output, *other_fds = fds
        control_group = other_fds.pop(0) if message["group"] else -1
        exit_pipe = other_fds.pop(0)
        has_namespaces = bool(other_fds)
        init_pidfd = other_fds.pop(0) if has_namespaces else -1
        judge_socket = other_fds.pop(0) if has_namespaces else -1
        spec = WorkerSpec(
            level=self.level,
            # A caller that waits is better served by a worker that begins at once.
            rehearsed_libraries="" if message["urgent"] else self.libraries,
            folder=message["folder"],
            mapped_bytes=self.mapped_bytes,
            control_group=control_group,
            init_pidfd=init_pidfd,
            judge_socket=judge_socket,
        )
        try:
            if has_namespaces:
                # A process namespace is joined by the next child, not by this process.
                linux.setns(init_pidfd, linux.NEWPID)
            zygote_pid = os.getpid()
            worker_pid = linux.fork()
            if not worker_pid:
                if has_namespaces:
                    work(spec, control, output)
                run_subreaper(spec, control, output, exit_pipe, zygote_pid)
            worker_pidfd = os.pidfd_open(worker_pid)
            reply = b'{"serial": %d, "pid": %d}' % (serial, worker_pid)
            messages.send_packet(self.requests, reply, [worker_pidfd])
        except OSError as error:
            messages.send_packet(self.requests, {"serial": serial, "error": str(error)})
            messages.close_descriptors(*fds)
            return None
        messages.close_descriptors(*[fd for fd in fds if fd != exit_pipe])
        self.exit_pipes[worker_pid] = exit_pipe
        return worker_pidfd

    def reap_workers(self) -> None:
        """Reap the processes that have ended, and report how on the exit pipes."""
        with contextlib.suppress(ChildProcessError):  # there is no child any more
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                exit_pipe = self.exit_pipes.pop(pid, None)
                if exit_pipe is None:
                    continue
                # At other levels it was a subreaper, which has reported its worker's end itself.
                if self.level == "namespaces":
                    messages.write_exit_report(exit_pipe, messages.EXIT, wait_status)
                os.close(exit_pipe)


def _warm_up(libraries: str) -> None:
    """Make this process the interpreter that programs find, with what they often import.

    Args:
        libraries: The large libraries to import, such as "numpy+sympy".
    """
    os.environ.clear()
    interpreters_folder = Path(sys.executable).parent
    os.environ.update(_ENVIRONMENT, PATH=f"{interpreters_folder}:/usr/local/bin:/usr/bin:/bin")
    for name in _IMPORTS.split():
        importlib.import_module(name)
    for name in filter(None, libraries.split("+")):
        with contextlib.suppress(ImportError):  # a program that imports it will get the error
            importlib.import_module(name)
    if "sympy" in sys.modules:
        exercise_sympy()
    _seed_numpy()
    random.seed(0)
    sys.orig_argv[:] = [sys.executable]
    # Programs are to find a plain interpreter. This package's functions work without their modules'
    # entries, which are removed.
    own_package = __name__.split(".")[0]
    own_modules = [name for name in sys.modules if name.split(".")[0] == own_package]
    for name in own_modules:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def _seed_numpy() -> None:
    """Seed numpy's global generator, now or when a program imports numpy.

    The same code then gives the same text.
    """
    if _NUMPY_RANDOM in sys.modules:
        sys.modules[_NUMPY_RANDOM].seed(0)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the module `numpy.random`, once, and has its loader seed it."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find `numpy.random`, and no other module, as a finder in `sys.meta_path` does."""
        if fullname != _NUMPY_RANDOM:
            return None
        # The other finders find it, and nothing of this one is left.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load_module = spec.loader.exec_module

        def load_and_seed(module: Any) -> None:
            load_module(module)
            module.seed(0)

        # The loader was made for this import only.
        setattr(spec.loader, "exec_module", load_and_seed)  # noqa: B010
        return spec
