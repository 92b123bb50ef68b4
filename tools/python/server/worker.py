"""A worker: a fork of a zygote that confines itself and serves a session.

`work` is the life of a worker. A session can fork itself, by `fork_session`, into a twin with its
own socket, output pipe and copy of the work folder.
"""

import contextlib
import fcntl
import gc
import os
import random
import shutil
import socket
import stat
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ...subprocesses import messages
from ..isolation import landlock, linux, seccomp
from ..isolation.file_view import HOME
from ..isolation.levels import MAX_OPEN_FILES, max_open_files, remove_folder, set_limits
from ..isolation.namespaces import become_agent
from .interpreter import Interpreter, SessionAnswer

# Programs that a worker runs before its session begins: one for each library that it has preloaded,
# and that of "" in any case. They are text, since the interpreter is to handle them as it handles
# the agent's programs.
_REHEARSALS = {
    "": """\
x = [i * i for i in range(9)]
print(sum(x), f'{x[1]:.2f}')
len(x)""",
    "numpy": """\
import numpy as np
print(np.arange(4).sum(), np.linspace(0, 1, 3) @ np.ones(3))""",
    "sympy": """\
import sympy as s
x = s.symbols('x')
print(s.solve(2 * x**2 - 7 * x + 3, x))""",
}


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker is to be. Descriptors that it does not have are -1."""

    level: str  # its isolation level
    rehearsed_libraries: str  # whose rehearsals it runs, such as "numpy+sympy"
    folder: str  # its work folder, which it makes
    mapped_bytes: int  # address space that it has from the start
    control_group: int = -1  # what it writes to in order to join its control group, if it has one
    # At level `namespaces`, a pidfd of the init, whose namespaces it joins.
    init_pidfd: int = -1
    # A socket to the process that judges its system calls that name other processes; at all levels
    # but `rlimits-only`.
    judge_socket: int = -1
    ruleset: int = -1  # at level `landlock`, the descriptor of the ruleset


def work(spec: WorkerSpec, control: int, output: int) -> NoReturn:
    """Be a worker: confine this process, and serve a session until the parent goes away.

    Args:
        spec: What the worker is to be.
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.
    """
    control_socket = socket.socket(fileno=control)
    try:
        try:
            _confine(spec)
            control_socket, output = _settle_descriptors(control_socket.detach(), output)
            os.umask(0o077)
            # It exists if the interpreter is installed below it. `os.mkdir`, since pathlib would
            # have the kernel copy many pages of memory for this fork.
            with contextlib.suppress(FileExistsError):
                os.mkdir(spec.folder, 0o700)  # noqa: PTH102
            if spec.folder == HOME:
                os.mkdir("/tmp/shm")  # noqa: PTH102
            _enter_work_folder(spec.folder)
            set_limits()
            _rehearse(control_socket, spec)
            session = Interpreter(control_socket, output, spec.folder, spec.mapped_bytes)
        except Exception as error:
            messages.send_packet(control_socket, {"failed": f"{type(error).__name__}: {error}"})
            raise
        messages.send_packet(control_socket, b'{"ready": true}')
        session.serve(fork_session)
    except EOFError:
        os._exit(0)
    finally:
        os._exit(1)


def _confine(spec: WorkerSpec) -> None:
    """Give up all that the isolation level forbids, in an order in which each step is allowed."""
    if spec.control_group >= 0:
        os.write(spec.control_group, b"0")  # 0 means the process that writes
        os.close(spec.control_group)
    if spec.level == "namespaces":
        namespaces = linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET
        linux.setns(spec.init_pidfd, namespaces)
        become_agent()
    elif spec.level == "landlock":
        landlock.enforce_landlock(spec.ruleset)
        seccomp.install(seccomp.build_filter(spec.level))
    os.setsid()
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    if spec.judge_socket >= 0:
        listener = seccomp.install(seccomp.build_last_filter(spec.level), listening=True)
        with socket.socket(fileno=spec.judge_socket) as judge_socket:
            messages.send_packet(judge_socket, b"{}", [listener])
        os.close(listener)


def _settle_descriptors(control: int, output: int) -> tuple[socket.socket, int]:
    """Leave only standard input, output and errors, and the worker's own two descriptors.

    Standard input is empty; output and errors go to the pipe. The other two get the highest numbers
    that are allowed, so that the first file that a program opens is number 3, as everywhere.

    Args:
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.

    Returns:
        The control socket and the descriptor of the output pipe under their new numbers.
    """
    highest = max_open_files() - 1
    # First out of the way of the low numbers, which are assigned and closed next.
    middle = highest // 2
    control = fcntl.fcntl(control, fcntl.F_DUPFD, middle)
    output = fcntl.fcntl(output, fcntl.F_DUPFD, middle)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, middle)
    # Then low, so that all others can be closed, and at last to the highest numbers.
    control = os.dup2(control, 3)
    output = os.dup2(output, 4)
    os.closerange(5, 1 << 16)
    final_control = os.dup2(control, highest - 1, inheritable=False)
    final_output = os.dup2(output, highest, inheritable=False)
    messages.close_descriptors(control, output)
    return socket.socket(fileno=final_control), final_output


def _rehearse(control_socket: socket.socket, spec: WorkerSpec) -> None:
    """Run small programs whose output nobody reads.

    A fork copies each page of memory when it is first written, which takes longer than most
    programs run. The pages that every program writes are copied here, before anybody waits.
    """
    null = os.open("/dev/null", os.O_WRONLY)
    for library in {"", *spec.rehearsed_libraries.split("+")}:
        if not library or library in sys.modules:
            rehearsal = Interpreter(control_socket, null, spec.folder, spec.mapped_bytes)
            rehearsal.run(_REHEARSALS[library])
    os.close(null)
    gc.freeze()


def fork_session(
    interpreter: Interpreter, folder: str, ended_members: list[int], fds: list[int]
) -> SessionAnswer | None:
    """Fork a session into a twin, which reports on its own socket that it is ready.

    The twin is no child of this process, so that a program that waits for its children never sees
    it. A session is not forked if it has something that the twin would lose or share with it.

    Args:
        interpreter: The session.
        folder: The work folder of the twin, such as "/tmp/home-3".
        ended_members: Numbers of sessions of the group that have ended; their folders are removed.
        fds: The twin's control socket and the writing end of its output pipe.

    Returns:
        How it went, and if not well, why; None in the twin.
    """
    first_folder = folder.rpartition("-")[0]
    for member in ended_members:
        remove_folder(first_folder if member == 1 else f"{first_folder}-{member}")
    kept_fds = {0, 1, 2, interpreter.control.fileno(), interpreter.output, *fds}
    refusal = _find_reason_against_fork(kept_fds, interpreter.folder)
    generator_state = random.getstate()  # which `os.fork` replaces in the twin
    is_twin = False
    if not refusal:
        try:
            is_twin = _fork_without_child()
        except OSError as error:
            refusal = f"it has as many processes as it may ({error})"
    if is_twin:
        _become_twin(interpreter, folder, fds)
        random.setstate(generator_state)
        return None
    messages.close_descriptors(*fds)
    if refusal:
        # Without what JSON escapes, since names that the agent has chosen may be part of it.
        plain = [mark for mark in refusal if mark.isprintable() and mark not in '"\\']
        return SessionAnswer("refused", "".join(plain)[:500])
    return SessionAnswer("status", "ok")


def _fork_without_child() -> bool:
    """Fork into a process that is no child of this one, by way of another that exits.

    Returns:
        Whether this is the new process.

    Raises:
        OSError: One of the two forks failed.
    """
    middle_pid = os.fork()
    if middle_pid:
        _, wait_status = os.waitpid(middle_pid, 0)
        if wait_status:
            raise OSError("the second of two forks failed")
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    return True


def _become_twin(interpreter: Interpreter, folder: str, fds: list[int]) -> None:
    """Turn the copy of a session into a session: new descriptors, a new folder, a message.

    Args:
        interpreter: The copied session.
        folder: The work folder of the twin, which gets a copy of the files.
        fds: The twin's control socket and the writing end of its output pipe.
    """
    # The new descriptors take the numbers of the old ones, which are closed by that.
    control = interpreter.control.fileno()
    interpreter.control.detach()
    new_control, new_output = fds
    os.dup2(new_control, control, inheritable=False)
    os.dup2(new_output, interpreter.output, inheritable=False)
    messages.close_descriptors(*fds)
    interpreter.control = socket.socket(fileno=control)
    try:
        seccomp.begin_session()
        current_folder = Path.cwd()
        shutil.copytree(interpreter.folder, folder, symlinks=True)
        _enter_work_folder(folder)
        # It stays in the work folder if the session was elsewhere.
        with contextlib.suppress(OSError, ValueError):
            os.chdir(Path(folder) / current_folder.relative_to(interpreter.folder))
        interpreter.folder = folder
        messages.send_packet(interpreter.control, {"ready": True})
    except BaseException as error:
        messages.send_packet(interpreter.control, {"failed": f"{type(error).__name__}: {error}"})
        os._exit(1)


def _enter_work_folder(folder: str) -> None:
    os.chdir(folder)
    if os.environ.get("HOME") != folder:
        os.environ["HOME"] = os.environ["TMPDIR"] = folder


def _find_reason_against_fork(kept_fds: set[int], folder: str) -> str | None:
    """Return why this session cannot fork, None if it can.

    A fork has no threads and no children of the session, and would share files that are open for
    writing.

    Args:
        kept_fds: Descriptors that do not matter, since the twin gets its own, or uses them alike.
        folder: The work folder, below which open files are named by their paths.
    """
    own_thread = threading.current_thread()
    other_threads = [thread.name for thread in threading.enumerate() if thread is not own_thread]
    if other_threads:
        return f"it has live threads ({', '.join(other_threads)})"
    with contextlib.suppress(ChildProcessError):  # raised if there are no children
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return "it has child processes"
    for fd in range(MAX_OPEN_FILES):
        if fd in kept_fds:
            continue
        with contextlib.suppress(OSError):  # it is not open
            access_mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            if access_mode != os.O_RDONLY:
                return f"it has open for writing: {_describe_descriptor(fd, folder)}"
    return None


def _describe_descriptor(fd: int, folder: str) -> str:
    """Describe what a descriptor refers to: "socket", "pipe" or the path of a file in `folder`.

    Anything else is called by its number: "descriptor 5".
    """
    status = os.fstat(fd)
    if stat.S_ISSOCK(status.st_mode):
        return "socket"
    if stat.S_ISFIFO(status.st_mode):
        return "pipe"
    for parent, _, file_names in os.walk(folder):
        for file_name in file_names:
            path = Path(parent, file_name)
            if os.path.samestat(path.lstat(), status):
                return str(path)
    return f"descriptor {fd}"
