"""JVMs that run the simulator of ScienceWorld, one world each, and a pool that reuses them.

`Jvm` starts a JVM with little memory and calls methods in it; `JvmPool` (`POOL`) lends JVMs to
episodes. A JVM listens on loopback, on a port it chooses, and accepts whoever sends the token that
it printed. It ends with the process that started it. Requests are in the protocol of Py4J, whose
jar answers them.
"""

import atexit
import importlib
import os
import re
import select
import shutil
import socket
import subprocess
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, RLock
from typing import Any, Final

from ..outcomes import EnvFailure

INSTALL = "pip install --no-deps scienceworld==1.2.3 py4j==0.10.9.9"
JAVA = "apt-get install openjdk-17-jre-headless"
HEAP_MIB: Final = 96  # enough for every world
MAX_JVMS = 64  # at a time
TIMEOUT = 120.0  # seconds that a JVM has for an answer
OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+UnlockExperimentalVMOptions",
    # One hash for all objects: the simulator iterates over hash sets of objects, whose order would
    # differ from run to run by their usual random hashes.
    "-XX:hashCode=2",
)
SIMULATOR_CLASS = "scienceworld.runtime.pythonapi.PythonInterface"


def describe_missing() -> str:
    """Return what the simulator needs and is not installed, with the line that installs it.

    The text is empty if all is there.
    """
    if not (find_spec("scienceworld") and find_spec("py4j")):
        return (
            "the simulator is in the packages scienceworld and py4j, "
            f"which are not installed: {INSTALL}"
        )
    if not _find_java():
        return f"the simulator needs Java, and there is no program java: {JAVA}"
    return ""


def _find_java() -> str | None:
    """Return the path of `java` in JAVA_HOME, or without that variable on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=f"{home}/bin" if home else None)


def _class_path() -> str:
    """Return the jars of Py4J and of the simulator as a class path of Java."""
    spec = find_spec("scienceworld")
    if spec is None or spec.origin is None:
        raise EnvFailure(describe_missing())
    simulator_jar = Path(spec.origin).parent / "scienceworld.jar"
    # Py4J's own jar comes first: the simulator's holds an old Py4J, which knows no tokens.
    py4j_jar = importlib.import_module("py4j.java_gateway").find_jar_path()
    return f"{py4j_jar}:{simulator_jar}"


class Jvm:
    """A JVM with the simulator in it. Any fault raises EnvFailure and ends the JVM.

    Args:
        heap: The limit of its heap in MiB.
    """

    def __init__(self, heap: int = HEAP_MIB) -> None:
        self.heap = heap
        self.owner = os.getpid()  # the one process that may talk to it
        # Its working directory, as the simulator writes a file where it is started.
        self._folder = TemporaryDirectory(prefix="turngym-")
        self.process = self._start_process()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # Streams that `close` closes.
        self._streams: list[Any] = [self.process.stdin, self.process.stdout]
        try:
            self._connect()
            self.simulator = str(self._request("i", SIMULATOR_CLASS, "e"))
        except (OSError, EnvFailure) as error:
            self.close()
            raise EnvFailure(f"a JVM does not start: {error}") from error
        # What it prints from now on is dropped.
        self._streams.remove(self.process.stdout)
        self.process.stdout.close()

    def _start_process(self) -> subprocess.Popen[bytes]:
        command = [
            _find_java() or "java",
            f"-Xmx{self.heap}m",
            *OPTIONS,
            "-cp",
            _class_path(),
            "py4j.GatewayServer",
            "--die-on-broken-pipe",  # it ends when its standard input does: with this process
            "--enable-auth",
            "0",  # the port: any that is free
        ]
        try:
            return subprocess.Popen(
                command,
                bufsize=0,
                start_new_session=True,
                cwd=self._folder.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise EnvFailure(f"no JVM can be started: {error}; {describe_missing()}") from error

    def _connect(self) -> None:
        """Connect to the port that the JVM prints, and send the token that it prints next."""
        port = self._read_port()
        connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        # Requests are a few bytes, and each waits for its answer: send them without delay.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = connection.makefile("rw", encoding="utf-8", errors="replace", newline="\n")
        self._streams += [self._lines, connection]
        token = self._read_printed_line()
        self._request("A", token)

    def _read_port(self) -> int:
        """Return the port that the JVM prints; raise EnvFailure with what else it prints."""
        printed = ""
        while True:
            line = self._read_printed_line()
            if line.isdigit():
                return int(line)
            printed = f"{printed} {line}"[:300]
            if not line:
                raise EnvFailure(printed.strip() or "it says nothing")

    def _read_printed_line(self) -> str:
        """Return the next line that the JVM prints; empty if there is none within the timeout."""
        output = self.process.stdout
        assert output is not None
        readable, _, _ = select.select([output], [], [], TIMEOUT)
        if not readable:
            return ""
        return str(output.readline(), "utf-8", "replace").strip()

    def call(self, method: str, *args: str | int | bool, target: str = "") -> Any:
        """Call a method in the JVM and return its result.

        Args:
            method: The name of the method.
            args: Its arguments.
            target: The reference of an object that an earlier call returned; the simulator
                if it is left out.

        Raises:
            EnvFailure: The JVM fails, does not answer in time, or belongs to another process.
        """
        if os.getpid() != self.owner:
            raise EnvFailure(
                f"a JVM of process {self.owner} is asked by another: "
                "make environments where they run"
            )
        arguments = [_encode_argument(argument) for argument in args]
        try:
            return self._request("c", target or self.simulator, method, *arguments, "e")
        except (OSError, ValueError, EnvFailure) as error:
            fault = "failed" if self.process.poll() is None else "died"
            self.close()
            raise EnvFailure(f"the JVM {fault} at {method}: {error}") from error

    def _request(self, *lines: str) -> Any:
        """Send a request of Py4J, one part a line, and return the value of its answer.

        An answer is "!y", a letter for the type of the value, and the value; or "!x" and an
        error. References to objects are returned as they are: for `call(..., target=reference)`.

        Raises:
            EnvFailure: The answer is an error.
        """
        self._lines.write("\n".join([*lines, ""]))
        self._lines.flush()
        answer = self._lines.readline().rstrip("\n")
        status, type_code, value = answer[:2], answer[2:3], answer[3:]
        if status == "!x" and type_code == "r":
            # The value is the reference of an exception in the JVM: ask for its text.
            value = str(self._request("c", value, "toString", "e"))
        if status != "!y":
            raise EnvFailure(_unescape(value)[:200] or "it closed the connection")
        match type_code:
            case "s":
                return _unescape(value)
            case "i":
                return int(value)
            case "d":
                return float(value)
            case "b":
                return value == "true"
        return value

    def close(self) -> None:
        """Kill the JVM and delete its folder."""
        self.process.kill()
        self.process.wait()
        for stream in self._streams:
            with suppress(OSError):
                stream.close()
        with suppress(OSError):
            self._folder.cleanup()


def _encode_argument(value: str | int | bool) -> str:
    """Write an argument as Py4J does: a letter for its type, then its value on one line."""
    if isinstance(value, bool):
        return f"b{str(value).lower()}"
    if isinstance(value, int):
        return f"i{value}"
    return "s" + value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def _unescape(text: str) -> str:
    r"""Return text as it was before Py4J wrote it on one line: `\n`, `\r` and `\\` are escapes."""
    line_ends = {"n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda escape: line_ends.get(escape[1], escape[1]), text)


class AllLent(EnvFailure):
    """All JVMs that there may be are in use."""


class JvmPool:
    """Lends JVMs, at most `MAX_JVMS` at a time, and keeps those that are given back for reuse."""

    def __init__(self) -> None:
        self._places = BoundedSemaphore(MAX_JVMS)  # one for each JVM that may be lent
        self._lock = RLock()
        self._idle: list[Jvm] = []

    def take(self, heap: int = HEAP_MIB) -> Jvm:
        """Return a JVM for the caller's use only, until it is given back.

        Args:
            heap: The limit of its heap in MiB.

        Raises:
            AllLent: All that there may be are in use.
            EnvFailure: None can be started.
        """
        if not self._places.acquire(blocking=False):
            raise AllLent(
                f"{MAX_JVMS} worlds are live, which is the most; close an environment or a fork"
            )
        with self._lock:
            for jvm in list(self._idle):
                # After a fork of this process the pool also lists JVMs of the parent.
                if jvm.heap != heap or jvm.owner != os.getpid():
                    continue
                self._idle.remove(jvm)
                if jvm.process.poll() is None:
                    return jvm
                jvm.close()
        try:
            return Jvm(heap)
        except BaseException:
            self._places.release()
            raise

    def give_back(self, jvm: Jvm) -> None:
        """Take a lent JVM back; if it still runs, it waits for the next episode."""
        self._places.release()
        with self._lock:
            if jvm.process.poll() is None:
                self._idle.append(jvm)

    def close(self) -> None:
        """End all JVMs that are not lent."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


POOL = JvmPool()
atexit.register(POOL.close)
