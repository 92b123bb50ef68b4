"""A worker: the fork of a zygote that confines itself, reports that it is ready, and serves a session.

A session forks itself into a twin, which has a socket, a pipe and a copy of the work folder of its own.
"""

import contextlib
import fcntl
import gc
import json
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
from ..isolation.levels import OPEN_FILES, open_files, remove_folder, set_limits
from ..isolation.namespaces import become_agent
from .interpreter import Interpreter

# Programs in lines, and what a zygote imports and sets before it runs any.
PROGRAMS = json.loads(Path(__file__).with_name("programs.json").read_text())


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker is to be."""

    level: str  # what confines it
    kind: str  # the libraries with which it rehearses
    folder: str  # where it works, a folder that it makes
    mapped: int  # bytes of address space that it has from the start
    group: int = -1  # what it joins its control group by; -1 where there is none
    init: int = (
        -1
    )  # at level `namespaces`, a pidfd of the process whose namespaces it joins; else -1
    judge: int = (
        -1
    )  # a socket to who decides about calls that name another process; -1 at level `rlimits-only`
    ruleset: int = -1  # at level `landlock`, the descriptor of its rules; else -1


def work(spec: WorkerSpec, control: int, output: int) -> NoReturn:
    sock = socket.socket(fileno=control)
    try:
        try:
            _confine(spec)
            sock, output = _settle_descriptors(sock.detach(), output)
            os.umask(0o077)
            with contextlib.suppress(FileExistsError):  # an interpreter that lives there
                os.mkdir(spec.folder, 0o700)  # noqa: PTH102 - pathlib has the kernel copy many pages
            if spec.folder == HOME:
                os.mkdir("/tmp/shm")  # noqa: PTH102
            _move(spec.folder)
            set_limits()
            _rehearse(sock, spec)
            session = Interpreter(sock, output, spec.folder, spec.mapped)
        except Exception as error:
            messages.send(sock, {"failed": f"{type(error).__name__}: {error}"})
            raise
        messages.send(sock, b'{"ready": true}')
        session.serve(fork_session)
    except EOFError:
        os._exit(0)
    finally:
        os._exit(1)


def _confine(spec: WorkerSpec) -> None:
    if spec.group >= 0:
        os.write(spec.group, b"0")
        os.close(spec.group)
    if spec.level == "namespaces":
        linux.setns(
            spec.init, linux.NEWUSER | linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET
        )
        become_agent()
    elif spec.level == "landlock":
        landlock.enforce_landlock(spec.ruleset)
        seccomp.install(seccomp.build_filter(spec.level))
    os.setsid()
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    if spec.judge >= 0:
        listener = seccomp.install(seccomp.build_last_filter(spec.level), listening=True)
        with socket.socket(fileno=spec.judge) as judge:
            messages.send(judge, b"{}", [listener])
        os.close(listener)


def _rehearse(sock: socket.socket, spec: WorkerSpec) -> None:
    # A fork copies each page of memory when it is first written, which takes longer than most programs; the pages that
    # every program writes are copied here, before anybody waits.
    nowhere = os.open("/dev/null", os.O_WRONLY)
    for library in {"", *spec.kind.split("+")}:
        if not library or library in sys.modules:
            Interpreter(sock, nowhere, spec.folder, spec.mapped).run(
                "\n".join(PROGRAMS["rehearsals"][library])
            )
    os.close(nowhere)
    gc.freeze()


def _settle_descriptors(control: int, output: int) -> tuple[socket.socket, int]:
    """Keep standard input, which is empty, output twice, and the two descriptors as the last ones of all."""
    last = open_files() - 1
    control, output = (fcntl.fcntl(fd, fcntl.F_DUPFD, last // 2) for fd in (control, output))
    for fd, number in ((os.open("/dev/null", os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(fd, number)
    os.closerange(3, last // 2)
    control, output = os.dup2(control, 3), os.dup2(output, 4)
    os.closerange(5, 1 << 16)
    ends = os.dup2(control, last - 1, inheritable=False), os.dup2(output, last, inheritable=False)
    messages.close(control, output)
    return socket.socket(fileno=ends[0]), ends[1]


def fork_session(
    interpreter: Interpreter, folder: str, left: list[int], fds: list[int]
) -> tuple[str, str] | None:
    """Fork a session onto the control socket and output pipe in `fds`; return how that went, in the twin None.

    The twin works in `folder`, says that it is ready, and is nobody's child but the boundary's. It is refused for a
    session that has what a fork would share or lose. The folders of members that have ended (`left`) are removed.
    """
    stem = folder.rpartition("-")[0]
    for number in left:
        remove_folder(stem if number == 1 else f"{stem}-{number}")
    refusal = _refusal(
        {0, 1, 2, interpreter.control.fileno(), interpreter.output, *fds}, interpreter.folder
    )
    generator, twin = random.getstate(), False  # forking reseeds it
    if not refusal:
        try:
            twin = _fork_aside()
        except OSError as error:
            refusal = f"it has as many processes as it may ({error})"
    if twin:
        _take_over(interpreter, folder, fds)
        random.setstate(generator)
        return None
    messages.close(*fds)
    if refusal:
        return "refused", "".join(
            mark for mark in refusal if mark.isprintable() and mark not in '"\\'
        )[:500]
    return "status", "ok"


def _fork_aside() -> bool:
    """Fork into a process that is no child of this one; whether this is the new one."""
    if middle := os.fork():
        if os.waitpid(middle, 0)[1]:
            raise OSError("the second of two forks failed")
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    return True


def _take_over(interpreter: Interpreter, folder: str, fds: list[int]) -> None:
    control, output = interpreter.control.fileno(), interpreter.output
    interpreter.control.detach()
    for fd, mine in zip(fds, (control, output)):
        os.dup2(fd, mine, inheritable=False)
    messages.close(*fds)
    interpreter.control = socket.socket(fileno=control)
    try:
        seccomp.begin_session()
        here = Path.cwd()
        shutil.copytree(interpreter.folder, folder, symlinks=True)
        _move(folder)
        with contextlib.suppress(OSError, ValueError):
            os.chdir(Path(folder) / here.relative_to(interpreter.folder))
        interpreter.folder = folder
        messages.send(interpreter.control, {"ready": True})
    except BaseException as error:
        messages.send(interpreter.control, {"failed": f"{type(error).__name__}: {error}"})
        os._exit(1)


def _move(folder: str) -> None:
    os.chdir(folder)
    if os.environ.get("HOME") != folder:
        os.environ["HOME"] = os.environ["TMPDIR"] = folder


def _refusal(own: set[int], folder: str) -> str | None:
    """Why this session cannot fork; its threads, children and open files would not be copied but lost or shared."""
    if others := [
        thread.name for thread in threading.enumerate() if thread is not threading.current_thread()
    ]:
        return f"it has live threads ({', '.join(others)})"
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return "it has child processes"
    for fd in range(OPEN_FILES):
        if fd not in own:
            with contextlib.suppress(OSError):
                if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                    return f"it has open for writing: {_name(fd, folder)}"
    return None


def _name(fd: int, folder: str) -> str:
    """Say what a descriptor is; of a file the path, where it lies in `folder`."""
    status = os.fstat(fd)
    if kind := {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe"}.get(stat.S_IFMT(status.st_mode)):
        return kind
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return next(
        (str(path) for path in files if os.path.samestat(path.lstat(), status)), f"descriptor {fd}"
    )
