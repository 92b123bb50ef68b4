"""The child side of a session: it runs the agent's programs in one namespace.

The namespace lives as long as the process. What a program writes goes to a pipe that the parent
reads while the program runs. The socket only carries how a call of a session ended. A program that
is run `once` ends its process, whose exit code tells the same.

A program may replace any function of any module. Whatever is used after a program has run is
therefore bound when this module is imported, or given as an argument's default.
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
from typing import Any, NamedTuple

from ...subprocesses import messages

MEMORY_SIGNAL = signal.SIGRTMAX  # ends a program that is run `once` and dies of a MemoryError

_write = os.write
_exit = os._exit
_kill = os.kill
_dup2 = os.dup2
_getpid = os.getpid
_shutdown_threads: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
_enumerate_threads = threading.enumerate
_current_thread = threading.current_thread
_run_exit_handlers = atexit._run_exitfuncs
_collect_garbage = gc.collect
_print_exception = sys.__excepthook__


class SessionAnswer(NamedTuple):
    """The answer to a message of the parent: one entry of a JSON object."""

    name: str
    value: str  # without characters that JSON escapes


class Interpreter:
    """One namespace and the loop that runs programs in it.

    Args:
        control: The socket to the parent.
        output: The writing end of the output pipe.
        folder: The work folder.
        mapped_bytes: The address space that the process had before it ran any program; the memory
            of a program is limited to an amount beyond it.
    """

    def __init__(self, control: socket.socket, output: int, folder: str, mapped_bytes: int) -> None:
        self.control = control
        self.output = output
        self.folder = folder
        self.mapped_bytes = mapped_bytes
        self.calls = 0  # the programs that were run so far
        main_module = types.ModuleType("__main__")
        main_module.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main_module
        self.namespace = main_module.__dict__
        # As at the prompt: no arguments, and modules are looked up in the current folder first.
        sys.argv = [""]
        sys.path[:] = ["", *filter(None, sys.path)]
        threading.excepthook = self._report_in_thread
        sys.unraisablehook = self._report_ignored
        # A fresh session gives the same text for the same code.
        random.seed(0)

    def serve(
        self, fork: "Callable[[Interpreter, str, list[int], list[int]], SessionAnswer | None]"
    ) -> None:
        """Run the programs that the parent sends, and fork when it asks for that.

        Args:
            fork: Forks this process; see `worker.fork_session`. It returns None in the new process,
                which then serves on its own socket.

        Raises:
            EOFError: The parent has gone away.
        """
        while True:
            message, fds = messages.receive_packet(self.control)
            if "code" in message:
                self._serve_program(message, fds)
                continue
            answer = fork(self, message["fork"], message["left"], fds)
            if answer is not None:
                self._send_answer(message["key"], answer)

    def _serve_program(self, message: dict[str, Any], fds: list[int]) -> None:
        """Run a program that the parent has sent, and answer with the status of the call.

        Args:
            message: The request. "memory" is the bytes that the program may use. "once" is whether
                the process ends with the program, and its exit code is the answer. "key" has to be
                in the answer.
            fds: The descriptor of a file in memory with the program.
        """
        code_fd = fds[0]
        code = os.pread(code_fd, os.fstat(code_fd).st_size, 0).decode()
        messages.close_descriptors(*fds)
        messages.set_resource_limit(resource.RLIMIT_AS, self.mapped_bytes + message["memory"])
        if message["once"]:
            self._keep_only_standard_streams()
        own_pid = _getpid()
        error = self.run(code)
        # If the program has forked, its child returns from `run` as well. It must not answer.
        is_forked_child = _getpid() != own_pid
        if message["once"] or is_forked_child:
            exit_code = self.finish_process(error)
            _exit(exit_code)
        status = self.finish_call(error)
        self._send_answer(message["key"], SessionAnswer("status", status))

    def run(self, code: str) -> BaseException | None:
        """Run a program, and print the value of its last statement if that is an expression.

        Returns:
            The exception that ended the program early; None if there was none. Its traceback is
            printed, unless it is a SystemExit.
        """
        self._open_standard_streams()
        self.calls += 1
        # Each call has its own file name, so that a traceback shows the right lines of a function
        # that an earlier call has defined.
        filename = f"<python {self.calls}>"
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        try:
            tree = ast.parse(code, filename)
            last_expression: list[ast.stmt] = []
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last_expression = [tree.body.pop()]
            # dont_inherit: the `__future__` imports of this module are not those of the program.
            exec(compile(tree, filename, "exec", dont_inherit=True), self.namespace)
            if last_expression:
                # Compiled as "single", an expression prints its value, as at the prompt.
                interactive = ast.Interactive(last_expression)
                exec(compile(interactive, filename, "single", dont_inherit=True), self.namespace)
        except SystemExit as stop:
            return stop
        except BaseException as error:
            self._report_error(error)
            return error
        return None

    def finish_call(self, error: BaseException | None) -> str:
        """End a call of a session: wait for the program's threads, and run its exit handlers.

        Args:
            error: The exception that ended the program early, if any.

        Returns:
            The status of the call: "ok", "error" or "memory".
        """
        try:
            self._join_threads()
            _run_exit_handlers()
        except BaseException as late_error:
            self._report_error(late_error)
            error = error or late_error
        if isinstance(error, MemoryError):
            return "memory"
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            return "ok"
        if isinstance(error, SystemExit):
            self._write_output(f"SystemExit: {error.code}\n")
        return "error"

    def _join_threads(self) -> None:
        """Wait for the threads that a program has started, except those that never end."""
        # Idle threads of an executor wait for more work, and end only with the process.
        futures = sys.modules.get("concurrent.futures.thread")
        executor_threads = getattr(futures, "_threads_queues", {})
        for thread in _enumerate_threads():
            if thread is _current_thread() or thread.daemon or thread in executor_threads:
                continue
            thread.join()

    def finish_process(self, error: BaseException | None) -> int:
        """Do what CPython does at the end of a process, in the same order.

        Args:
            error: The exception that ended the program early, if any. If it is a MemoryError, the
                process is killed with `MEMORY_SIGNAL`, so that the parent recognises it.

        Returns:
            The exit code, from 0 to 255.
        """
        exit_code = 0 if error is None else 1
        if isinstance(error, SystemExit):
            # `sys.exit(3)` sets the exit code. `sys.exit("text")` prints the text, and the exit
            # code is 1.
            if isinstance(error.code, int | None):
                exit_code = error.code or 0
            if error.code is not None and error.code != exit_code:
                self._write_output(f"{error.code}\n")
        final_steps = (
            _shutdown_threads,
            _run_exit_handlers,
            self._clear_namespace,
            _collect_garbage,
            self._flush_standard_streams,
        )
        for step in final_steps:
            try:
                step()
            except BaseException as late_error:
                self._report_error(late_error)
        if isinstance(error, MemoryError):
            _kill(_getpid(), MEMORY_SIGNAL)
        return exit_code & 0xFF

    def _send_answer(self, key: str, answer: SessionAnswer) -> None:
        # Without the json module, whose functions a program may have replaced. One write is one
        # packet.
        text = f'{{"{answer.name}": "{answer.value}", "key": "{key}"}}'
        _write(self.control.fileno(), text.encode())

    def _clear_namespace(self) -> None:
        """Release the program's namespace, as CPython does at its end."""
        main_module = sys.modules.pop("__main__", None)
        # A program may have put any object in its place.
        if not isinstance(main_module, types.ModuleType):
            del main_module
            self.namespace = {}
            _collect_garbage()
            return
        # Without the references of this process only those of the program keep the module alive.
        weak_module = weakref.ref(main_module)
        del main_module
        self.namespace = {}
        _collect_garbage()
        surviving_module = weak_module()
        if surviving_module is None:
            return
        # CPython then sets its variables to None, those with one leading underscore first.
        variables = surviving_module.__dict__
        for private_pass in (True, False):
            for name in list(variables):
                is_private = name[:1] == "_" and name[:2] != "__"
                if name != "__builtins__" and is_private == private_pass:
                    variables[name] = None

    def _flush_standard_streams(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()

    def _open_standard_streams(self) -> None:
        """Direct standard output and errors to the pipe, whatever earlier code did to them."""
        for number in (1, 2):
            if number != self.output:
                _dup2(self.output, number)
        sys.stdout = _make_stream(1)
        sys.stderr = _make_stream(2)

    def _keep_only_standard_streams(self) -> None:
        """Close all descriptors but 0 to 2, so that a program that is run `once` finds only these.

        The socket is not needed any more, since no other program will follow.
        """
        for number in (1, 2):
            _dup2(self.output, number)
        self.control.close()
        os.close(self.output)
        self.output = 2  # a copy of it

    def _report_in_thread(self, args: threading.ExceptHookArgs) -> None:
        """Print the exception that ended a thread; the `threading.excepthook`."""
        if args.exc_value is None or isinstance(args.exc_value, SystemExit):
            return
        thread_name = args.thread.name if args.thread else "?"
        self._write_output(f"Exception in thread {thread_name}:\n")
        self._report_error(args.exc_value)

    def _report_ignored(self, args: Any) -> None:
        """Print an exception that cannot be raised, as in `__del__`; the `sys.unraisablehook`."""
        if args.exc_value is None:
            return
        self._write_output(f"{args.err_msg or 'Exception ignored in'}: {args.object!r}\n")
        self._report_error(args.exc_value)

    def _report_error(self, error: BaseException) -> None:
        """Print the traceback of an exception, or only its type if that fails."""
        try:
            self._write_output(_format_traceback(error))
        # An exception class of the agent may have a broken `__str__`, or memory may be used up.
        except BaseException:
            self._write_output(f"{type(error).__name__}\n")

    def _write_output(self, text: str) -> None:
        # The kernel may take only a part at once. Lone surrogates are written as escapes.
        unwritten = memoryview(text.encode(errors="backslashreplace"))
        while unwritten:
            written_bytes = _write(self.output, unwritten)
            unwritten = unwritten[written_bytes:]


def _make_stream(number: int) -> io.TextIOWrapper:
    """Return a text stream that writes to a descriptor at once.

    Without a buffer, output and errors keep their order, and a call that is cut off has already
    shown what it wrote.
    """
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _format_traceback(
    error: BaseException, from_exception: Any = traceback.TracebackException.from_exception
) -> str:
    """Return the traceback of an exception with only the lines of the agent's programs.

    The frames of this package and of libraries are left out. The file of a program, such as
    "<python 3>" for the third call, is called "<python>".

    Args:
        error: The exception.
        from_exception: The original function, since a program may have replaced it.
    """
    report = from_exception(error, compact=True)
    # The report contains those of the cause, of the context, and of the exceptions of a group.
    pending_reports: list[traceback.TracebackException | None] = [report]
    while pending_reports:
        pending_report = pending_reports.pop()
        if pending_report is None:
            continue
        _keep_program_frames(pending_report)
        pending_reports += [pending_report.__cause__, pending_report.__context__]
        pending_reports += getattr(pending_report, "exceptions", None) or ()
    text = "".join(report.format())
    # From Python 3.12 on the report itself says "Did you mean: 'name'?".
    if sys.version_info < (3, 12) and isinstance(error, NameError | AttributeError):
        return _add_suggestion(error, text)
    return text


def _keep_program_frames(report: traceback.TracebackException) -> None:
    """Drop the frames of a report that are not from programs, and call the others' file "<python>".

    Reports that it contains are not changed.
    """
    report.stack[:] = [frame for frame in report.stack if frame.filename.startswith("<python ")]
    for frame in report.stack:
        frame.line  # noqa: B018 - looks the line up by the file name, before that is changed
        frame.filename = "<python>"
    # Only the report of a SyntaxError has a file itself: the one with the bad syntax.
    if getattr(report, "filename", "").startswith("<python "):
        report.filename = "<python>"


def _add_suggestion(error: BaseException, text: str) -> str:
    """Add ". Did you mean: 'name'?" to a traceback if the interpreter would print that.

    Args:
        error: The exception.
        text: Its traceback, without a suggestion.

    Returns:
        The traceback, with the suggestion if there is one.
    """
    # Up to Python 3.11 only the interpreter itself finds suggestions, and prints them.
    program_stderr = sys.stderr
    sys.stderr = io.StringIO()
    try:
        _print_exception(type(error), error, error.__traceback__)
        printed_text = sys.stderr.getvalue().rstrip("\n")
    finally:
        sys.stderr = program_stderr
    last_line = text.rstrip("\n").rpartition("\n")[2]
    # What follows the last line in the printed text is the suggestion.
    _, found_line, suggestion = printed_text.rpartition(last_line)
    if found_line and suggestion.startswith(". Did you mean"):
        return f"{text.rstrip()}{suggestion}\n"
    return text
