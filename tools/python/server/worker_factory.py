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
from typing import Any, NamedTuple, NoReturn

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
    exit_reason: str = "it was killed"  # replaced by the reason that it reports before it exits


def start_zygote(level: str, libraries: str) -> Zygote:
    """Fork this process, the supervisor, into a zygote.

    Args:
        level: The isolation level of its workers.
        libraries: The libraries that it preloads, such as "numpy+sympy".
    """
    supervisor_end, zygote_end = messages.packet_pair()
    supervisor_pid = os.getpid()
    zygote_pid = os.fork()
    if zygote_pid == 0:  # this is the new process
        # It keeps its socket, as 3, and closes all other descriptors of the supervisor.
        requests = os.dup2(zygote_end.fileno(), 3)
        os.closerange(4, 1 << 16)
        _run_zygote(socket.socket(fileno=requests), level, libraries, supervisor_pid)
    zygote_end.close()
    return Zygote(supervisor_end, zygote_pid)


def _run_zygote(
    requests: socket.socket, level: str, libraries: str, supervisor_pid: int
) -> NoReturn:
    """Preload libraries, and then fork workers for the supervisor, in a new process: the zygote.

    Args:
        requests: The zygote's end of the socket for requests.
        level: The isolation level of its workers.
        libraries: The libraries that it preloads, such as "numpy+sympy".
        supervisor_pid: The process that has forked this one.
    """
    own_pid = os.getpid()
    try:
        linux.die_with(supervisor_pid)
        # The supervisor has the kernel reap its children, but a zygote has to learn how its workers
        # end.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _warm_up(libraries)
        if level == "namespaces":
            os.environ["HOME"] = os.environ["TMPDIR"] = HOME
            # The workers inherit this filter: installing one takes as long as the fork of a worker.
            seccomp.install(seccomp.build_filter(level))
        else:
            # An interpreter that a program starts has to find the allowed packages. At level
            # `namespaces` it does so by itself.
            package_folders = [path for path in sys.path if Path(path).name == PACKAGES_FOLDER]
            os.environ["PYTHONPATH"] = os.pathsep.join(package_folders)
        if level != "rlimits-only":
            # Each worker installs this filter. Both functions remember their result, so that the
            # workers need not build it again.
            seccomp.sock_fprog(seccomp.build_last_filter(level))
        _WorkerForker(requests, level, libraries).serve()
    except BaseException as error:
        if own_pid == os.getpid():
            messages.send_packet(requests, {"failed": f"{type(error).__name__}: {error}"[:500]})
    finally:
        # Neither the zygote nor a fork of it may return into the code of the supervisor.
        os._exit(1)


class _RequestFds(NamedTuple):
    """The descriptors of a request to fork a worker. Those that it does not have are -1."""

    control: int  # the worker's end of the control socket
    output: int  # the writing end of the output pipe
    control_group: int  # the file to which the worker writes to join its control group
    exit_pipe: int  # the writing end of the exit pipe
    # At level `namespaces`, a pidfd of the init, and the socket to it for the seccomp listener.
    init_pidfd: int
    judge_socket: int


def _name_request_fds(fds: list[int], *, has_control_group: bool) -> _RequestFds:
    """Name the descriptors of a request, in the order in which `request_worker` sends them.

    Args:
        fds: The descriptors. The last two are sent only at level `namespaces`.
        has_control_group: Whether the one for joining a control group is among them.
    """
    remaining_fds = list(fds)
    control = remaining_fds.pop(0)
    output = remaining_fds.pop(0)
    control_group = remaining_fds.pop(0) if has_control_group else -1
    exit_pipe = remaining_fds.pop(0)
    has_namespaces = bool(remaining_fds)
    init_pidfd = remaining_fds.pop(0) if has_namespaces else -1
    judge_socket = remaining_fds.pop(0) if has_namespaces else -1
    return _RequestFds(control, output, control_group, exit_pipe, init_pidfd, judge_socket)


class _WorkerForker:
    """The loop of a zygote, which forks workers on request and reaps them.

    Args:
        requests: The zygote's end of the socket for requests.
        level: The isolation level of the workers.
        libraries: The libraries that are preloaded, such as "numpy+sympy".
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
        """Fork workers on request, and reap them when they end.

        Raises:
            EOFError: The supervisor has ended.
        """
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.requests.fileno():
                    forked_pidfd = self.answer_request()
                    if forked_pidfd is not None:
                        poll.register(forked_pidfd, select.POLLIN)
                else:  # the pidfd of a process that has ended
                    poll.unregister(fd)
                    os.close(fd)
            self.reap_workers()

    def answer_request(self) -> int | None:
        """Receive a request of the supervisor, fork a worker, and reply with its process.

        Without namespaces the forked process is the init of a boundary (the sandbox of a session
        and its forks), and forks the worker itself.

        Returns:
            A pidfd of the forked process, which becomes readable at its end; None if the fork
            failed.
        """
        message, fds = messages.receive_packet(self.requests)
        serial = message["serial"]
        named_fds = _name_request_fds(fds, has_control_group=message["group"])
        # With namespaces the init exists already, and its pidfd is sent.
        has_namespaces = named_fds.init_pidfd >= 0
        spec = WorkerSpec(
            level=self.level,
            # For a caller that waits, a worker without rehearsals is ready sooner.
            rehearsed_libraries="" if message["urgent"] else self.libraries,
            folder=message["folder"],
            mapped_bytes=self.mapped_bytes,
            control_group=named_fds.control_group,
            init_pidfd=named_fds.init_pidfd,
            judge_socket=named_fds.judge_socket,
        )
        try:
            if has_namespaces:
                # Not this process joins the process namespace of the init, but its next child.
                linux.setns(named_fds.init_pidfd, linux.NEWPID)
            zygote_pid = os.getpid()
            forked_pid = linux.fork()
            if forked_pid == 0:  # this is the new process; neither function returns
                if has_namespaces:
                    work(spec, named_fds.control, named_fds.output)
                run_subreaper(
                    spec, named_fds.control, named_fds.output, named_fds.exit_pipe, zygote_pid
                )
            forked_pidfd = os.pidfd_open(forked_pid)
            reply = b'{"serial": %d, "pid": %d}' % (serial, forked_pid)
            messages.send_packet(self.requests, reply, [forked_pidfd])
        except OSError as error:
            messages.send_packet(self.requests, {"serial": serial, "error": str(error)})
            messages.close_descriptors(*fds)
            return None
        # The exit pipe stays open for the report on the worker's end.
        other_fds = [fd for fd in fds if fd != named_fds.exit_pipe]
        messages.close_descriptors(*other_fds)
        self.exit_pipes[forked_pid] = named_fds.exit_pipe
        return forked_pidfd

    def reap_workers(self) -> None:
        """Reap the forked processes that have ended, and report their wait status on exit pipes."""
        with contextlib.suppress(ChildProcessError):  # there is no child any more
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if not pid:  # there are children, but none that has ended
                    return
                exit_pipe = self.exit_pipes.pop(pid, None)
                if exit_pipe is None:
                    continue
                # At other levels the process was the init, which has reported its worker's end.
                if self.level == "namespaces":
                    messages.write_exit_report(exit_pipe, messages.EXIT, wait_status)
                os.close(exit_pipe)


def _warm_up(libraries: str) -> None:
    """Prepare this process as the interpreter that its forks will run programs in.

    It gets the environment of programs, imports the modules that programs often import, seeds the
    random generators, and removes the traces of this package.

    Args:
        libraries: The large libraries to import, such as "numpy+sympy".
    """
    os.environ.clear()
    interpreter_folder = Path(sys.executable).parent
    os.environ.update(_ENVIRONMENT, PATH=f"{interpreter_folder}:/usr/local/bin:/usr/bin:/bin")
    for module_name in _IMPORTS.split():
        importlib.import_module(module_name)
    for library in filter(None, libraries.split("+")):
        # If it is not installed, a program that imports it gets the error.
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    if "sympy" in sys.modules:
        exercise_sympy()
    _seed_numpy()
    random.seed(0)
    sys.orig_argv[:] = [sys.executable]
    # Programs must not find this package in `sys.modules`. Its functions still work: they refer to
    # what they use directly.
    own_package = __name__.split(".")[0]
    own_modules = [
        module_name for module_name in sys.modules if module_name.split(".")[0] == own_package
    ]
    for module_name in own_modules:
        del sys.modules[module_name]
    # Collections in forks then leave the present objects alone, whose pages of memory would
    # otherwise be copied.
    gc.collect()
    gc.freeze()


def _seed_numpy() -> None:
    """Seed numpy's global generator, now or when a program imports numpy.

    The same program then gives the same output.
    """
    if _NUMPY_RANDOM in sys.modules:
        sys.modules[_NUMPY_RANDOM].seed(0)
    else:
        sys.meta_path.insert(0, _SeedingFinder())


class _SeedingFinder:
    """Finds the module `numpy.random`, once, and has its loader seed the global generator."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of `numpy.random`, whose loader seeds it; None for any other module.

        The import system calls this, as the method of a finder in `sys.meta_path`.
        """
        if fullname != _NUMPY_RANDOM:
            return None
        # The other finders are to find it. Programs do not see this one any more.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load_module = spec.loader.exec_module

        def load_and_seed(module: Any) -> None:
            load_module(module)
            module.seed(0)

        # The loader belongs to this import only, so that no other one is changed.
        setattr(spec.loader, "exec_module", load_and_seed)  # noqa: B010
        return spec
