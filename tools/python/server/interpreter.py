"""The child side of a session: it runs the agent's programs in one namespace that lives as long as the process.

What a program writes goes to a pipe that the parent reads while it runs; the socket only says how a call of a session
ended. A program that runs `once` says it with its exit code, as every process does. What is used after a program has
run is bound before, since the program may change any module.
"""

import ast
import atexit
import gc
import io
import linecache
import os
import random
import resource
import signal
import socket
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

from ...subprocesses import messages

MEMORY_SIGNAL = signal.SIGRTMAX  # ends a program that runs `once` and dies of a MemoryError

_write, _exit, _kill, _dup2, _getpid = os.write, os._exit, os.kill, os.dup2, os.getpid
_shutdown_threads: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
_run_exit_handlers, _collect, _show = atexit._run_exitfuncs, gc.collect, sys.__excepthook__
_enumerate_threads, _this_thread = threading.enumerate, threading.current_thread


class Interpreter:
    """One namespace and the loop that runs programs in it."""

    def __init__(self, control: socket.socket, output: int, folder: str, mapped: int) -> None:
        self.control, self.output, self.folder = control, output, folder
        self.mapped, self.calls = mapped, 0
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        self.namespace, sys.argv = main.__dict__, [""]
        sys.path[:] = ["", *filter(None, sys.path)]
        threading.excepthook = self._report_in_thread
        sys.unraisablehook = self._report_ignored
        # A fresh session gives the same text for the same code.
        random.seed(0)

    def serve(
        self, fork: "Callable[[Interpreter, str, list[int], list[int]], tuple[str, str] | None]"
    ) -> None:
        """Answer `code` and, by `fork`, `fork` messages; raises EOFError when the parent goes away."""
        while True:
            message, fds = messages.receive(self.control)
            if "code" in message:
                code = os.pread(fds[0], os.fstat(fds[0]).st_size, 0).decode()
                messages.close(*fds)
                messages.limit(resource.RLIMIT_AS, self.mapped + message["memory"])
                if message["once"]:
                    self._leave_only_streams()
                own = _getpid()
                ended = self.run(code)
                if (
                    message["once"] or _getpid() != own
                ):  # a child of the program has come to the program's end
                    _exit(self.finish(ended))
                self._answer(message["key"], "status", self.settle(ended))
            elif reply := fork(self, message["fork"], message["left"], fds):
                self._answer(message["key"], *reply)

    def run(self, code: str) -> BaseException | None:
        """Run a program, print a last expression's value; return what ended it early, its traceback printed."""
        self._open_streams()
        self.calls += 1
        # Every call has its own file name, so that a function's lines are looked up in the call that defined it.
        filename = f"<python {self.calls}>"
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        try:
            tree = ast.parse(code, filename)
            last: list[ast.stmt] = (
                [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
            )
            exec(compile(tree, filename, "exec", dont_inherit=True), self.namespace)
            if last:
                exec(
                    compile(ast.Interactive(last), filename, "single", dont_inherit=True),
                    self.namespace,
                )
        except SystemExit as stop:
            return stop
        except BaseException as error:
            self._report(error)
            return error
        return None

    def settle(self, ended: BaseException | None) -> str:
        """Wait for what a program of a session still has to do, and return the status."""
        try:
            pools = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
            for thread in _enumerate_threads():
                if thread is not _this_thread() and not thread.daemon and thread not in pools:
                    thread.join()
            _run_exit_handlers()
        except BaseException as error:
            self._report(error)
            ended = ended or error
        if isinstance(ended, MemoryError):
            return "memory"
        if ended is None or (isinstance(ended, SystemExit) and ended.code in (None, 0)):
            return "ok"
        if isinstance(ended, SystemExit):
            self._say(f"SystemExit: {ended.code}\n")
        return "error"

    def finish(self, ended: BaseException | None) -> int:
        """End the program as CPython does and return its exit code."""
        code = int(ended is not None)
        if isinstance(ended, SystemExit):
            code = ended.code or 0 if isinstance(ended.code, int | None) else code
            if ended.code != code and ended.code is not None:
                self._say(f"{ended.code}\n")
        for step in (_shutdown_threads, _run_exit_handlers, self._clear, _collect, self._flush):
            try:
                step()
            except BaseException as error:
                self._report(error)
        if isinstance(ended, MemoryError):
            _kill(_getpid(), MEMORY_SIGNAL)
        return code & 0xFF

    def _answer(self, key: str, name: str, value: str) -> None:
        # Spelled out, since a program may have changed what the json module does; one write is one packet.
        _write(self.control.fileno(), f'{{"{name}": "{value}", "key": "{key}"}}'.encode())

    def _clear(self) -> None:
        """Let go of the program's namespace, as CPython does at its end."""
        main = sys.modules.pop("__main__", None)
        left = weakref.ref(main) if isinstance(main, types.ModuleType) else lambda: None
        del main
        self.namespace = {}
        _collect()
        if (module := left()) is None:
            return
        # Something still holds the module; what is private goes first.
        for private in (True, False):
            for name in list(module.__dict__):
                if name != "__builtins__" and private == (name[:1] == "_" and name[:2] != "__"):
                    module.__dict__[name] = None

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()

    def _open_streams(self) -> None:
        # Earlier code may have closed or redirected them.
        for number in (1, 2):
            if number != self.output:
                _dup2(self.output, number)
        sys.stdout, sys.stderr = _stream(1), _stream(2)

    def _leave_only_streams(self) -> None:
        """Let a program find the descriptors of a plain process; nobody will ask for another program."""
        for number in (1, 2):
            _dup2(self.output, number)
        self.control.close()
        os.close(self.output)
        self.output = 2

    def _report_in_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            self._say(f"Exception in thread {args.thread.name if args.thread else '?'}:\n")
            self._report(args.exc_value)

    def _report_ignored(self, args: Any) -> None:
        if args.exc_value is not None:
            self._say(f"{args.err_msg or 'Exception ignored in'}: {args.object!r}\n")
            self._report(args.exc_value)

    def _report(self, error: BaseException) -> None:
        try:
            self._say(_traceback(error))
        except (
            BaseException
        ):  # the agent's own exceptions may fail to print, and memory may be used up
            self._say(f"{type(error).__name__}\n")

    def _say(self, text: str) -> None:
        data = memoryview(text.encode(errors="backslashreplace"))
        while data:
            data = data[_write(self.output, data) :]


def _stream(number: int) -> io.TextIOWrapper:
    # Unbuffered: output and errors keep their order, and a call that is cut off has already shown what it wrote.
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _traceback(
    error: BaseException, from_exception: Any = traceback.TracebackException.from_exception
) -> str:
    report = from_exception(error, compact=True)
    pending: list[traceback.TracebackException | None] = [report]
    while pending:
        if (part := pending.pop()) is None:
            continue
        part.stack[:] = [frame for frame in part.stack if frame.filename.startswith("<python ")]
        for frame in part.stack:
            frame.line  # noqa: B018 - looked up by file name, so before that changes
            frame.filename = "<python>"
        if getattr(part, "filename", "").startswith("<python "):
            part.filename = "<python>"
        pending += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
    text = "".join(report.format())
    if sys.version_info < (3, 12) and isinstance(error, NameError | AttributeError):
        return _suggested(error, text)
    return text


def _suggested(error: BaseException, text: str) -> str:
    """Return the report with the interpreter's own last line, which also says what may have been meant."""
    heard, sys.stderr = sys.stderr, io.StringIO()
    try:
        _show(type(error), error, error.__traceback__)
        own = sys.stderr.getvalue().rstrip("\n")
    finally:
        sys.stderr = heard
    _, found, more = own.rpartition(text.rstrip("\n").rpartition("\n")[2])
    return f"{text.rstrip()}{more}\n" if found and more.startswith(". Did you mean") else text
