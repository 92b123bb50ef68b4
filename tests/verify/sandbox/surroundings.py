"""What a program must not reach: secrets, a folder, listeners, and the places of the machine where files may appear.

Secrets stand in the environment of this process, in a file and in its memory. The folder of temporary files is set to
one of this world's, so that what the tool leaves behind is seen.
"""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import random
import select
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType

VARIABLES = (
    "RLGYM_CANARY",
    "TURNGYM_CANARY",
    "HF_TOKEN",
    "WANDB_API_KEY",
)  # in which the first secret stands
ABSTRACT = (
    "canary-sock"  # what programs call the abstract socket; a name that is free stands in its place
)
BUSY = (
    "/",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/run",
    "/etc",
    "/usr",
    "/root",
    "/home",
)  # others write there, too


class Surroundings:
    """A world of one seed: `values` has what stands for each placeholder."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"world {seed} {os.getpid()} {random.SystemRandom().random()}")
        self.secrets = [
            f"{kind}-{rng.getrandbits(96):024x}" for kind in ("CANARY", "CANARY", "GOLD")
        ]
        self.number = str(rng.randrange(10**5, 10**6))  # a gold answer that is a number
        self.abstract = (
            f"sock-{rng.getrandbits(64):016x}"  # no digit first: it stands behind a `\\0`
        )
        self._stack = ExitStack()
        self._listeners: dict[socket.socket, str] = {}

    def __enter__(self) -> Surroundings:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="world-")))
            self.outside, self.scratch = self.folder / "outside", _scratch()
            self._before = set(self.scratch.iterdir())
            self._furnish()
            stack.enter_context(
                _environment(dict.fromkeys(VARIABLES, self.secrets[0]), self.scratch)
            )
            self.values = self._values(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    def heard(self) -> list[str]:
        """Return the listeners that somebody reached since they were last asked."""
        ready, _, _ = select.select(list(self._listeners), [], [], 0)
        for listener in ready:
            with suppress(OSError):
                if listener.type == socket.SOCK_DGRAM:
                    listener.recv(65536)
                else:
                    listener.accept()[0].close()
        return [self._listeners[listener] for listener in ready]

    def told(self, text: str) -> bool:
        """Return whether `text` holds a secret, plainly or in a usual disguise."""
        return any(form in text for secret in self.secrets for form in _forms(secret))

    def outside_files(self) -> dict[str, str]:
        """Return every path outside with a digest of what is in it."""
        return {
            str(path): _digest(path) for path in (self.outside, *sorted(self.outside.rglob("*")))
        }

    def busy_places(self) -> set[str]:
        """Return what is in the places of the machine into which others write, too."""
        places = dict.fromkeys(
            (*BUSY, str(Path.cwd()), str(Path.cwd().parent), str(Path.home()), str(self.folder))
        )
        return {str(path) for place in places for path in _listed(Path(place))}

    def scratch_files(self) -> list[str]:
        """Return what is in the folder of temporary files, where the tool keeps what it needs while it is warm."""
        return sorted(
            f"{at}/{name}"
            for at, folders, files in os.walk(self.scratch)
            for name in (*folders, *files)
        )

    def new_files(self) -> list[Path]:
        """Return the temporary files and folders that came while this world was there."""
        return sorted(set(self.scratch.iterdir()) - self._before)

    def clear(self) -> None:
        """Remove them."""
        for path in self.new_files():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _furnish(self) -> None:
        (self.outside / "deep").mkdir(parents=True)
        for name in ("notes.txt", "deep/data.bin", "deep/.hidden"):
            (self.outside / name).write_text(f"of the host: {name}\n" * 10)
        (self.outside / "link").symlink_to("notes.txt")
        self.canary = self.folder / "credentials"
        self.canary.write_text(f"token = {self.secrets[1]}\n")
        for path in (
            self.folder,
            self.outside,
            self.canary,
        ):  # nothing but the boundary keeps a program away
            path.chmod(0o755 if path.is_dir() else 0o644)

    def _values(self, stack: ExitStack) -> dict[str, str]:
        host = _address()
        tcp = self._listen(stack, "TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        self._listen(stack, "UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port))
        if host != "127.0.0.1":
            self._listen(stack, "TCP of the host", socket.AF_INET, socket.SOCK_STREAM, (host, port))
        self._listen(
            stack, "abstract unix", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.abstract}"
        )
        self._listen(
            stack, "unix", socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "s.sock")
        )
        return {
            "CANARY_FILE": str(self.canary),
            "OUTSIDE_DIR": str(self.outside),
            "HOST_PORT": str(port),
            "FREE_PORT": str(free_port()),
            "PARENT_PID": str(os.getpid()),
            "PACKAGE": "turngym",
            "HOST": host,
        }

    def _listen(
        self, stack: ExitStack, name: str, family: int, kind: int, address: str | tuple[str, int]
    ) -> socket.socket:
        listener = stack.enter_context(socket.socket(family, kind))
        listener.bind(address)
        listener.setblocking(False)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        self._listeners[listener] = name
        return listener


@cache
def _scratch() -> Path:
    """Make the folder of temporary files, one for all worlds: the tool's server outlives them and keeps files there."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-"))
    folder.chmod(0o1777)  # as that of a machine
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def free_port() -> int:
    """Return a TCP port on which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _environment(secrets: dict[str, str], scratch: Path) -> Iterator[None]:
    """Set the variables and the folder of temporary files of this process, and restore both."""
    new = {**secrets, "TMPDIR": str(scratch)}
    old, folder = {name: os.environ.get(name) for name in new}, tempfile.tempdir
    os.environ.update(new)
    tempfile.tempdir = str(scratch)
    try:
        yield
    finally:
        tempfile.tempdir = folder
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _address() -> str:
    """Return an address of this machine in its network; that of the loopback where it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses a route
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _forms(secret: str) -> tuple[str, ...]:
    data = secret.encode()
    return secret, secret[::-1], data.hex(), base64.b64encode(data).decode().rstrip("=")[:-1]


def _digest(path: Path) -> str:
    status = (
        path.lstat()
    )  # whatever is done to a file, its time of change tells: times, owner, attributes, links
    state = f"{status.st_mode:o} {status.st_uid} {status.st_mtime_ns} {status.st_ctime_ns}"
    if path.is_file() and not path.is_symlink():
        return f"{state} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return state


def _listed(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError:
        return []
