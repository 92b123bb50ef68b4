"""Zygotes: warm interpreters that have imported what programs of one kind import, and fork a worker for each request.

Kinds keep small programs from carrying numpy and sympy, whose memory would double the cost of every fork.
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
from ..isolation.file_view import HOME, PACKAGES
from .boundary import run_subreaper
from .worker import PROGRAMS, WorkerSpec, work

_NUMPY_RANDOM = "numpy.random"


@dataclass
class Zygote:
    """A warm interpreter as the supervisor knows it."""

    requests: socket.socket
    pid: int = 0
    proven: bool = False  # whether it has ever forked a worker
    reason: str = "it was killed"  # why it will have ended


def start_zygote(level: str, kind: str) -> Zygote:
    ours, theirs = messages.pair()
    own = os.getpid()
    if not (pid := os.fork()):
        requests = os.dup2(theirs.fileno(), 3)
        os.closerange(4, 1 << 16)
        _main(socket.socket(fileno=requests), level, kind, own)
    theirs.close()
    return Zygote(ours, pid)


class _Forker:
    """The serving loop. `workers` maps the processes that it forked to the exit pipes of their boundaries."""

    def __init__(self, requests: socket.socket, level: str, kind: str) -> None:
        self.requests, self.level, self.kind = requests, level, kind
        self.workers: dict[int, int] = {}
        self.mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.requests.fileno():
                    if (pidfd := self.answer()) is not None:
                        poll.register(pidfd, select.POLLIN)
                else:
                    poll.unregister(fd)
                    os.close(fd)
            self.reap()

    def answer(self) -> int | None:
        """Carry out a request, and return a pidfd of the worker whose death is to be awaited, if any."""
        message, fds = messages.receive(self.requests)
        control, output, *rest = fds
        group, serial = rest.pop(0) if message["group"] else -1, message["serial"]
        exit_pipe, *init = rest
        # A caller that waits is better served by a worker that begins at once.
        kind = "" if message["urgent"] else self.kind
        spec = WorkerSpec(self.level, kind, message["folder"], self.mapped, group, *init)
        try:
            if init:
                linux.setns(spec.init, linux.NEWPID)  # for the next child
            own, pid = os.getpid(), linux.fork()
            if not pid:
                if init:
                    work(spec, control, output)
                run_subreaper(spec, control, output, exit_pipe, own)
            messages.send(
                self.requests,
                b'{"serial": %d, "pid": %d}' % (serial, pid),
                [pidfd := os.pidfd_open(pid)],
            )
        except OSError as error:
            messages.send(self.requests, {"serial": serial, "error": str(error)})
            messages.close(*fds)
            return None
        messages.close(*(fd for fd in fds if fd != exit_pipe))
        self.workers[pid] = exit_pipe
        return pidfd

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if (exit_pipe := self.workers.pop(ended[0], None)) is not None:
                    if (
                        self.level == "namespaces"
                    ):  # else it was a subreaper, which has reported its worker's end
                        messages.report(exit_pipe, messages.EXIT, ended[1])
                    os.close(exit_pipe)


def _main(requests: socket.socket, level: str, kind: str, parent: int) -> NoReturn:
    """Preload the libraries of `kind` and serve the requests of the supervisor, which is `parent`; never returns."""
    own = os.getpid()
    try:
        linux.die_with(parent)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it has to know how its workers end
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _warm(kind)
        if level != "namespaces":  # there an interpreter finds them by itself
            os.environ["PYTHONPATH"] = os.pathsep.join(
                path for path in sys.path if Path(path).name == PACKAGES
            )
        if level == "namespaces":
            os.environ["HOME"] = os.environ["TMPDIR"] = HOME
            # Its workers have the filter without an install of their own, which costs as much as their fork.
            seccomp.install(seccomp.build_filter(level))
        if level != "rlimits-only":
            seccomp.sock_fprog(seccomp.build_last_filter(level))  # its workers find it ready
        _Forker(requests, level, kind).serve()
    except BaseException as error:
        if own == os.getpid():
            messages.send(requests, {"failed": f"{type(error).__name__}: {error}"[:500]})
    finally:
        os._exit(1)  # also in its forks: nothing may come back to the server's code


def _warm(kind: str) -> None:
    os.environ.clear()
    os.environ.update(
        PROGRAMS["environment"], PATH=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    )
    for name in PROGRAMS["imports"].split():
        importlib.import_module(name)
    for name in filter(None, kind.split("+")):
        with contextlib.suppress(ImportError):  # the program will be told
            importlib.import_module(name)
    if (
        "sympy" in sys.modules
    ):  # its first use fills caches, and the first few let the interpreter adapt its bytecode
        exec("\n".join(PROGRAMS["exercise"]), {})
    _seed_numpy()
    random.seed(0)
    sys.orig_argv[:] = [sys.executable]
    # The agent finds a plain interpreter; this package's functions live on without their entries.
    for name in [name for name in sys.modules if name.split(".")[0] == __name__.split(".")[0]]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def _seed_numpy() -> None:
    """Seed numpy's global generator now, or when a program imports it first: the same code gives the same text."""
    if _NUMPY_RANDOM in sys.modules:
        sys.modules[_NUMPY_RANDOM].seed(0)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds `numpy.random`, once, and has its loader seed it."""

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NUMPY_RANDOM:
            return None
        sys.meta_path.remove(self)
        if (spec := importlib.util.find_spec(fullname)) is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_seed(module: Any) -> None:
                load(module)
                module.seed(0)

            setattr(spec.loader, "exec_module", load_and_seed)  # noqa: B010 - a loader of its own, for this import only
        return spec
