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
    """The configuration of a worker. Descriptors that it does not have are -1."""

    level: str  # its isolation level
    rehearsed_libraries: str  # the libraries whose rehearsals it runs, such as "numpy+sympy"
    folder: str  # its work folder, which it makes
    mapped_bytes: int  # its address space before it runs any program
    control_group: int = -1  # the file to which it writes to join its control group
    # At level `namespaces`, a pidfd of the init, whose namespaces it joins.
    init_pidfd: int = -1
    # A socket to the process that judges its system calls that name other processes; at all levels
    # but `rlimits-only`.
    judge_socket: int = -1
    ruleset: int = -1  # at level `landlock`, the descriptor of the ruleset


def work(spec: WorkerSpec, control: int, output: int) -> NoReturn:
    """Confine this process, a new worker, and serve a session until the parent goes away.

    Args:
        spec: The configuration of the worker.
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.
    """
    control_socket = socket.socket(fileno=control)
    try:
        try:
            _confine(spec)
            control_socket, output = _move_descriptors_to_top(control_socket.detach(), output)
            os.umask(0o077)
            # `os.mkdir`, since the use of pathlib would write to many pages of memory, which the
            # kernel would have to copy for this fork.
            # The folder exists already if the interpreter is installed below it.
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
        os._exit(1)  # nothing may return into the code of the zygote


def _confine(spec: WorkerSpec) -> None:
    """Give up all that the isolation level forbids, in an order in which each step is allowed.

    Args:
        spec: The configuration of the worker. The descriptors that it names are used up.
    """
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
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # a change of credentials resets it
    # The last filter passes system calls that name other processes to the listener: the process at
    # the other end of the socket decides which are allowed.
    if spec.judge_socket >= 0:
        listener = seccomp.install(seccomp.build_last_filter(spec.level), listening=True)
        with socket.socket(fileno=spec.judge_socket) as judge_socket:
            messages.send_packet(judge_socket, b"{}", [listener])
        os.close(listener)


def _move_descriptors_to_top(control: int, output: int) -> tuple[socket.socket, int]:
    """Move the worker's two descriptors to the highest numbers, and close all that it inherited.

    Standard input is made empty; standard output and errors go to the pipe. The first file that a
    program opens then gets number 3, as in any process.

    Args:
        control: The worker's end of the control socket.
        output: The writing end of the output pipe.

    Returns:
        The control socket and the descriptor of the output pipe, with their new numbers.
    """
    highest = max_open_files() - 1
    # First to numbers in the middle, since the low ones are assigned and closed next.
    middle = highest // 2
    control = fcntl.fcntl(control, fcntl.F_DUPFD, middle)
    output = fcntl.fcntl(output, fcntl.F_DUPFD, middle)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, middle)
    # Then to low numbers, so that all above them can be closed, and at last to the highest.
    control = os.dup2(control, 3)
    output = os.dup2(output, 4)
    os.closerange(5, 1 << 16)
    final_control = os.dup2(control, highest - 1, inheritable=False)
    final_output = os.dup2(output, highest, inheritable=False)
    messages.close_descriptors(control, output)
    return socket.socket(fileno=final_control), final_output


def _rehearse(control_socket: socket.socket, spec: WorkerSpec) -> None:
    """Run small programs, so that the first program of the session runs sooner.

    The kernel copies a page of memory when a fork first writes to it, which takes longer than most
    programs run. The pages that every program writes are copied here, before a caller waits.

    Args:
        control_socket: The worker's end of the control socket, on which nothing is sent here.
        spec: The configuration of the worker.
    """
    null_fd = os.open("/dev/null", os.O_WRONLY)  # nobody reads the output
    for library in {"", *spec.rehearsed_libraries.split("+")}:
        if not library or library in sys.modules:
            rehearsal = Interpreter(control_socket, null_fd, spec.folder, spec.mapped_bytes)
            rehearsal.run(_REHEARSALS[library])
    os.close(null_fd)
    gc.freeze()  # a collection would write to the pages of all objects


def fork_session(
    interpreter: Interpreter, folder: str, ended_members: list[int], fds: list[int]
) -> SessionAnswer | None:
    """Fork a session into a twin, which reports on its own socket when it is ready.

    The twin is no child of this process, so that a program that waits for its children never sees
    it. The fork is refused if the session has something that the twin would lose or share with it,
    such as threads.

    Args:
        interpreter: The session.
        folder: The work folder of the twin, such as "/tmp/home-3".
        ended_members: The numbers of sessions of the group that have ended, whose folders are
            removed first.
        fds: The twin's control socket and the writing end of its output pipe.

    Returns:
        None in the twin. In this process the answer to the parent: "status" with "ok", or "refused"
        with the reason.
    """
    _remove_folders_of_members(ended_members, twin_folder=folder)
    known_fds = {0, 1, 2, interpreter.control.fileno(), interpreter.output, *fds}
    refusal = _find_reason_against_fork(known_fds, interpreter.folder)
    # The twin is to draw the same random numbers, but `os.fork` seeds its generator anew.
    generator_state = random.getstate()
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
        # An answer must not contain characters that JSON escapes, but the reason may contain names
        # of threads and files that the agent has chosen.
        plain_characters = [
            character for character in refusal if character.isprintable() and character not in '"\\'
        ]
        return SessionAnswer("refused", "".join(plain_characters)[:500])
    return SessionAnswer("status", "ok")


def _remove_folders_of_members(members: list[int], *, twin_folder: str) -> None:
    """Remove the work folders of members of this group of sessions.

    Args:
        members: The numbers of the members. Member 1 works in "/tmp/home", member 2 in
            "/tmp/home-2".
        twin_folder: The work folder of any member but the first.
    """
    first_folder = twin_folder.rpartition("-")[0]
    for member in members:
        folder = first_folder if member == 1 else f"{first_folder}-{member}"
        remove_folder(folder)


def _fork_without_child() -> bool:
    """Fork into a process that is no child of this one, by way of a process in between that exits.

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
    """Give the twin of a session its own descriptors and work folder, and tell that it is ready.

    If that fails, the reason is sent on its control socket, and the process exits.

    Args:
        interpreter: The twin's copy of the session, which is changed.
        folder: The work folder of the twin. The files of the session are copied into it.
        fds: The twin's control socket and the writing end of its output pipe.
    """
    # The new descriptors get the numbers of the old ones: `os.dup2` closes those.
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
        # If the session was in a folder below its work folder, so is the twin.
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


def _find_reason_against_fork(known_fds: set[int], folder: str) -> str | None:
    """Return why this session cannot fork; None if it can.

    A fork would lack the session's threads and child processes, and would share with it the files
    that are open for writing.

    Args:
        known_fds: The descriptors of the session itself, which do not prevent a fork.
        folder: The work folder. Files in it are named by their paths.
    """
    own_thread = threading.current_thread()
    other_threads = [thread.name for thread in threading.enumerate() if thread is not own_thread]
    if other_threads:
        return f"it has live threads ({', '.join(other_threads)})"
    with contextlib.suppress(ChildProcessError):  # raised if there are no children
        look_only = os.WEXITED | os.WNOHANG | os.WNOWAIT  # neither waits nor reaps
        os.waitid(os.P_ALL, 0, look_only)
        return "it has child processes"
    for fd in range(MAX_OPEN_FILES):
        if fd in known_fds:
            continue
        with contextlib.suppress(OSError):  # it is not open
            access_mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            if access_mode != os.O_RDONLY:
                return f"it has open for writing: {_describe_descriptor(fd, folder)}"
    return None


def _describe_descriptor(fd: int, folder: str) -> str:
    """Describe an open descriptor: "socket", "pipe" or the path of a file below `folder`.

    Anything else is described by its number: "descriptor 5".
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
