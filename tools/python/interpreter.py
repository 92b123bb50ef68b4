"""The child side of one Python session: it runs the agent's code in one namespace that lives as long as the process.

What the code writes goes to a pipe that the parent reads while it runs; the socket only says how a call ended. A twin
of the session is a fork of the process, with a socket, a pipe and a copy of the working directory of its own.
"""

import ast
import contextlib
import ctypes
import io
import linecache
import os
import random
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
import types
from pathlib import Path

from ..process import read_frame_with_fds, write_frame

MEMORY_EXIT = 86  # exit code of a session in which not even the reply found memory
_FILE_LIMIT = 16 * 2**20
_PR_SET_PDEATHSIG = 1


def live(sock: socket.socket, output: int, directory: str, memory_mb: int, zygote: int) -> None:
    """Be a session until the socket closes; never returns."""
    code = 1
    try:
        os.setsid()
        _die_with(zygote)
        _limit(memory_mb)
        Path(directory).mkdir(0o700)
        session = Interpreter(sock, output, directory, zygote)
        session.announce()
        session.serve()
    except MemoryError:
        code = MEMORY_EXIT
    except EOFError:
        code = 0
    finally:
        # The agent's exit handlers and threads have no say in when a session ends.
        os._exit(code)


class Interpreter:
    """One namespace and the loop that runs code in it."""

    def __init__(self, sock: socket.socket, output: int, directory: str, zygote: int) -> None:
        self.sock, self.output, self.zygote = sock, output, zygote
        self._move(directory)
        self.calls = 0
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self.namespace = main.__dict__
        sys.argv = [""]
        # A fresh session gives the same text for the same code.
        random.seed(0)

    def announce(self) -> None:
        """Tell the parent that the session is ready, and its process number."""
        write_frame(self.sock, {"pid": os.getpid()})

    def serve(self) -> None:
        """Answer `{"code"}` and `{"fork"}` frames; EOFError when the parent goes away."""
        while True:
            request, fds = read_frame_with_fds(self.sock)
            if "code" in request:
                write_frame(self.sock, {"status": self.run(request["code"])})
            elif self.fork(request["fork"], fds):
                write_frame(self.sock, {"status": "ok"})

    def run(self, code: str) -> str:
        """Run a program and return the status; a last expression prints its value unless it is None."""
        self._open_streams()
        self.calls += 1
        # Every call has its own file name, so that a function's lines are looked up in the call that defined it.
        filename = f"<python {self.calls}>"
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        try:
            self._execute(code, filename)
        except SystemExit as stop:
            if stop.code in (None, 0):
                return "ok"
            self._say(f"SystemExit: {stop.code}\n")
            return "error"
        except BaseException as error:
            self._say(_traceback(error))
            return "memory" if isinstance(error, MemoryError) else "error"
        return "ok"

    def fork(self, directory: str, fds: list[int]) -> bool:
        """Fork into a twin that serves the socket and pipe in `fds`; True in the original, False in the twin."""
        with contextlib.suppress(OSError):
            shutil.copytree(self.directory, directory, symlinks=True)
        generator = random.getstate()  # forking reseeds it
        middle = os.fork()
        if middle:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(middle, 0)
            for fd in fds:
                os.close(fd)
            return True
        middle = os.getpid()
        # The twin is a grandchild, so that it becomes the zygote's own child and does not end with the original.
        if os.fork():
            os._exit(0)
        os.setsid()
        while os.getppid() == middle:
            time.sleep(0.0005)
        _die_with(self.zygote)
        self.sock.close()
        os.close(self.output)
        self.sock, self.output = socket.socket(fileno=fds[0]), fds[1]
        Path(directory).mkdir(exist_ok=True)
        self._move(directory)
        random.setstate(generator)
        self.announce()
        return False

    def _move(self, directory: str) -> None:
        os.chdir(directory)
        os.environ.update(HOME=directory, TMPDIR=directory)
        self.directory = directory

    def _execute(self, code: str, filename: str) -> None:
        tree = ast.parse(code, filename)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(compile(tree, filename, "exec", dont_inherit=True), self.namespace)
        if last:
            exec(compile(ast.Interactive(last), filename, "single", dont_inherit=True), self.namespace)

    def _open_streams(self) -> None:
        # Earlier code may have closed or redirected them.
        for number in (1, 2):
            os.dup2(self.output, number)
        sys.stdout, sys.stderr = _stream(1), _stream(2)

    def _say(self, text: str) -> None:
        data = memoryview(text.encode(errors="backslashreplace"))
        while data:
            data = data[os.write(self.output, data) :]


def _stream(number: int) -> io.TextIOWrapper:
    # Unbuffered: output and errors keep their order, and a call that is cut off has already shown what it wrote.
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _traceback(error: BaseException) -> str:
    """The traceback with the agent's own lines only."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    pending: list[traceback.TracebackException | None] = [report]
    while pending:
        part = pending.pop()
        if part is None:
            continue
        part.stack[:] = [frame for frame in part.stack if frame.filename.startswith("<python ")]
        for frame in part.stack:
            frame.line  # noqa: B018 - looked up by file name, so before that changes
            frame.filename = "<python>"
        if getattr(part, "filename", "").startswith("<python "):
            part.filename = "<python>"
        pending += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
    return "".join(report.format())


def _die_with(zygote: int) -> None:
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:
        os._exit(1)


def libc() -> ctypes.CDLL:
    """The C library, for the system calls that Python does not wrap."""
    return ctypes.CDLL(None)


def _limit(memory_mb: int) -> None:
    for what, value in (
        (resource.RLIMIT_AS, memory_mb * 2**20),
        (resource.RLIMIT_FSIZE, _FILE_LIMIT),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (limit, limit))
