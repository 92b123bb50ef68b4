"""JVMs that each hold one world of ScienceWorld: started with little memory, asked, kept for the next episode, ended.

A JVM listens on loopback, on a port it chooses, and takes whoever knows the token it printed. It ends with the process
that started it. Requests are in the protocol of Py4J, whose jar answers them.
"""

import atexit
import importlib
import os
import re
import select
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, RLock
from typing import Any, Final

from ..outcomes import EnvFailure

INSTALL = "pip install --no-deps scienceworld==1.2.3 py4j==0.10.9.9"
JAVA = "apt-get install openjdk-17-jre-headless"
HEAP: Final = 96  # MiB, enough for every world
MOST = 64  # JVMs at a time
SECONDS = 120.0  # that an answer may take
OPTIONS = (
    *("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+UnlockExperimentalVMOptions"),
    "-XX:hashCode=2",  # one hash for all objects: the simulator iterates over sets of them, in an order that is random
)


def missing() -> str:
    """Return what is not installed and the line that installs it, empty where all is there."""
    if not (find_spec("scienceworld") and find_spec("py4j")):
        return f"the simulator is in the packages scienceworld and py4j, which are not installed: {INSTALL}"
    return "" if _java() else f"the simulator needs Java, and there is no program java: {JAVA}"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def _jars() -> str:
    spec = find_spec("scienceworld")
    if spec is None or spec.origin is None:
        raise EnvFailure(missing())
    # The simulator's jar has an old Py4J too, which knows no tokens.
    return f"{importlib.import_module('py4j.java_gateway').find_jar_path()}:{Path(spec.origin).parent}/scienceworld.jar"


class Jvm:
    """A JVM with the simulator. Whatever goes wrong is an `EnvFailure`, and ends it."""

    def __init__(self, heap: int = HEAP) -> None:
        self.heap, self.owner = heap, os.getpid()
        self._folder = TemporaryDirectory(
            prefix="turngym-"
        )  # the simulator writes a file where it is started
        command = [
            _java() or "java",
            f"-Xmx{heap}m",
            *OPTIONS,
            "-cp",
            _jars(),
            "py4j.GatewayServer",
        ]
        command += ["--die-on-broken-pipe", "--enable-auth", "0"]
        told: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        try:
            self.process = subprocess.Popen(
                command, bufsize=0, start_new_session=True, cwd=self._folder.name, **told
            )
        except OSError as error:
            raise EnvFailure(f"no JVM can be started: {error}; {missing()}") from error
        self._opened: list[Any] = [self.process.stdin, self.process.stdout]
        try:
            words = ""
            while not (port := self._line()).isdigit():
                words = f"{words} {port}"[:300]
                if not port:
                    raise EnvFailure(words.strip() or "it says nothing")
            link = socket.create_connection(("127.0.0.1", int(port)), SECONDS)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._file = link.makefile("rw", encoding="utf-8", errors="replace", newline="\n")
            self._opened += self._file, link
            self._send("A", self._line())
            self.server = str(
                self._send("i", "scienceworld.runtime.pythonapi.PythonInterface", "e")
            )
        except (OSError, EnvFailure) as error:
            self.close()
            raise EnvFailure(f"a JVM does not start: {error}") from error
        self._opened.pop(1).close()  # what it prints from now on goes nowhere

    def _line(self) -> str:
        """Return a line that it prints; empty where there is none in time."""
        out = self._opened[1]
        return (
            str(out.readline(), "utf-8", "replace").strip()
            if select.select([out], [], [], SECONDS)[0]
            else ""
        )

    def call(self, method: str, *args: str | int | bool, of: str = "") -> Any:
        """Return what a method of the simulator, or of an object of the JVM, gives."""
        if os.getpid() != self.owner:
            raise EnvFailure(
                f"a JVM of process {self.owner} is asked by another: make environments where they run"
            )
        try:
            return self._send("c", of or self.server, method, *map(_written, args), "e")
        except (OSError, ValueError, EnvFailure) as error:
            how = "failed" if self.process.poll() is None else "died"
            self.close()
            raise EnvFailure(f"the JVM {how} at {method}: {error}") from error

    def _send(self, *lines: str) -> Any:
        self._file.write("\n".join([*lines, ""]))
        self._file.flush()
        answer = self._file.readline().rstrip("\n")
        status, kind, value = answer[:2], answer[2:3], answer[3:]
        if status == "!x" and kind == "r":  # an exception, of which this is the reference
            value = str(self._send("c", value, "toString", "e"))
        if status != "!y":
            raise EnvFailure(_read(value)[:200] or "it closed the connection")
        known: dict[str, Callable[[str], Any]] = {
            "s": _read,
            "i": int,
            "d": float,
            "b": "true".__eq__,
        }
        return known.get(kind, str)(value)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for one in self._opened:
            with suppress(OSError):
                one.close()
        with suppress(OSError):
            self._folder.cleanup()


def _written(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return f"b{str(value).lower()}"
    if isinstance(value, int):
        return f"i{value}"
    return "s" + value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def _read(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text)


class AllLent(EnvFailure):
    """There may be no more JVMs, and none waits."""


class JvmPool:
    """The JVMs of this process that wait for the next episode, and how many there may be. With the process all end."""

    def __init__(self) -> None:
        self._places, self._lock = BoundedSemaphore(MOST), RLock()
        self._idle: list[Jvm] = []

    def take(self, heap: int = HEAP) -> Jvm:
        """Return a JVM that is nobody else's until it is given back.

        Raises `AllLent` where there may be no more, `EnvFailure` where none can be started.
        """
        if not self._places.acquire(blocking=False):
            raise AllLent(
                f"{MOST} worlds are live, which is the most; close an environment or a fork"
            )
        with self._lock:
            for jvm in [one for one in self._idle if (one.heap, one.owner) == (heap, os.getpid())]:
                self._idle.remove(jvm)
                if jvm.process.poll() is None:
                    return jvm
                jvm.close()
        try:
            return Jvm(heap)
        except BaseException:
            self._places.release()
            raise

    def give(self, jvm: Jvm) -> None:
        """Take one back, to wait for the next episode if it lives."""
        self._places.release()
        with self._lock:
            if jvm.process.poll() is None:
                self._idle.append(jvm)

    def close(self) -> None:
        with self._lock:
            while self._idle:
                self._idle.pop().close()


POOL = JvmPool()
atexit.register(POOL.close)
