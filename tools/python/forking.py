"""A session's twin: a fork of its process, with a socket, a pipe, and a copy of the work folder of its own."""

import contextlib
import fcntl
import os
import random
import shutil
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from . import packets
from .limits import OPEN_FILES

if TYPE_CHECKING:
    from .interpreter import Interpreter


def fork(interpreter: "Interpreter", folder: str, left: list[int], fds: list[int]) -> tuple[str, str] | None:
    """Fork a session onto the control socket and output pipe in `fds`; return how that went, in the twin None.

    The twin works in `folder`, says that it is ready, and is nobody's child but the boundary's. It is refused for
    a session that has what a fork would share or lose. `left` are the numbers of members that have ended, whose
    folders are removed.
    """
    stem = folder.rpartition("-")[0]
    for number in left:
        shutil.rmtree(stem if number == 1 else f"{stem}-{number}", ignore_errors=True)
    refusal = _refusal({0, 1, 2, interpreter.control.fileno(), interpreter.output, *fds})
    generator = random.getstate()  # forking reseeds it
    twin = False
    if not refusal:
        try:
            twin = _fork_aside()
        except OSError as error:
            refusal = f"it has as many processes as it may ({error})"
    if twin:
        _take_over(interpreter, folder, fds)
        random.setstate(generator)
        return None
    packets.close(*fds)
    if refusal:
        return "refused", "".join(mark for mark in refusal if mark.isprintable() and mark not in '"\\')[:500]
    return "status", "ok"


def _fork_aside() -> bool:
    """Fork into a process that is no child of this one; whether this is the new one."""
    middle = os.fork()
    if middle:
        if os.waitpid(middle, 0)[1]:
            raise OSError("the second of two forks failed")
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(1)
    return True


def _take_over(interpreter: "Interpreter", folder: str, fds: list[int]) -> None:
    """Make the twin a session of its own, or end it."""
    control, output = interpreter.control.fileno(), interpreter.output
    interpreter.control.detach()
    for fd, mine in zip(fds, (control, output)):
        os.dup2(fd, mine, inheritable=False)
    packets.close(*fds)
    interpreter.control = socket.socket(fileno=control)
    try:
        os.setsid()
        here = Path.cwd()
        shutil.copytree(interpreter.folder, folder, symlinks=True)
        move(folder)
        with contextlib.suppress(OSError, ValueError):
            os.chdir(Path(folder) / here.relative_to(interpreter.folder))
        interpreter.folder = folder
        packets.send(interpreter.control, {"ready": True})
    except BaseException as error:
        packets.send(interpreter.control, {"failed": f"{type(error).__name__}: {error}"})
        os._exit(1)


def move(folder: str) -> None:
    """Work in `folder`, which exists."""
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)


def _refusal(own: set[int]) -> str | None:
    """Why this session cannot fork; its threads, children and open files would not be copied but lost or shared."""
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        return f"it has live threads ({', '.join(others)})"
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return "it has child processes"
    for fd in range(OPEN_FILES):
        if fd not in own:
            with contextlib.suppress(OSError):
                if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                    return f"it has open for writing: {_name(fd)}"
    return None


def _name(fd: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return f"descriptor {fd}"
