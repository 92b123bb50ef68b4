"""This process: which of those that train together it is, and the signals that end it.

`launched` reads the environment variables that `torchrun` sets. `endings` and `shield` make SIGTERM and SIGINT an
exception, which waits until a change that must be whole is over. `endings()` is for the main thread of a command line.
Without it signals do what they always do, and `shield()` nothing. What a command leaves behind is then up to those who
catch a `KeyboardInterrupt` on its way out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

NEEDED = ("MASTER_ADDR", "MASTER_PORT")  # where the processes meet
SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 5.0  # seconds after which one more signal ends the process at once; checkpoints are whole at any instant
AGAIN = 0.05  # seconds until an exception that Python dropped is raised again


@dataclass(frozen=True)
class Launch:
    """One of `size` processes that were started with the same command; `local` is its number on its machine."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes and shows what all do."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """Return the device of this process in a run on `name`.

        Raises:
            ValueError: the processes of a machine cannot each have one.
        """
        if self.size == 1 or name == "cpu":
            return name
        if name != "cuda":
            raise ValueError(
                f"device is {name!r}, which {self.size} processes cannot share; use cuda, where each process takes "
                "the GPU of its number on the machine, or cpu"
            )
        return f"cuda:{self.local}"


def launched(environ: Mapping[str, str] = os.environ) -> Launch:
    """Return which process the environment describes; a process that has no RANK and WORLD_SIZE is alone.

    Raises:
        ValueError: the environment variables are incomplete or contradict each other.
    """
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return Launch()
    rank, size = _count(environ, "RANK"), _count(environ, "WORLD_SIZE")
    local = _count(environ, "LOCAL_RANK") if "LOCAL_RANK" in environ else rank
    if rank >= size:
        raise ValueError(f"RANK is {rank} and WORLD_SIZE {size}; ranks count from 0, so let torchrun set both")
    missing = [name for name in NEEDED if not environ.get(name)]
    if size > 1 and missing:
        raise ValueError(
            f"WORLD_SIZE is {size}, but {missing[0]} is not set, so the processes cannot connect: start with torchrun "
            "--nproc-per-node N -m turngym …, or unset WORLD_SIZE for one process"
        )
    return Launch(rank, size, local)


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} is {text!r}; it must be a number: let torchrun set it, or unset it for one process")
    return int(text)


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end. asyncio lets KeyboardInterrupt through, and no `except Exception` stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.status = 128 + number  # as shells count


@dataclass
class _Now:
    """What the handler knows. It runs in the main thread, and so does whoever changes this."""

    number: int | None = None  # of the first signal
    since: float = 0.0
    pending: bool = False  # its exception has yet to be raised
    shields: int = 0

    def raise_pending(self) -> None:
        """Raise the pending exception, unless a shield holds it back."""
        if self.pending and not self.shields and self.number is not None:
            self.pending = False
            raise Interrupted(self.number)


_now = _Now()


@contextmanager
def endings() -> Iterator[None]:
    """Inside, SIGTERM and SIGINT raise `Interrupted` in the main thread, once, behind any `shield()`.

    Further signals are ignored for `PATIENCE` seconds, so that impatience does not stop the last checkpoint.

    Raises:
        SystemExit: in place of a KeyboardInterrupt that nobody caught, with status 143 (SIGTERM) or 130.
        ValueError: this is not the main thread.
    """
    global _now
    before = {number: signal.signal(number, _on_signal) for number in SIGNALS}
    hook, outer = sys.unraisablehook, _now

    def on_dropped(dropped: Any) -> None:
        if isinstance(dropped.exc_value, Interrupted):
            _raise_later()
        else:
            hook(dropped)

    _now, sys.unraisablehook = _Now(), on_dropped
    try:
        yield
        _now.raise_pending()
    except KeyboardInterrupt as stop:
        raise SystemExit(stop.status if isinstance(stop, Interrupted) else 128 + signal.SIGINT) from None
    finally:
        _now, sys.unraisablehook = outer, hook
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def shield() -> Iterator[None]:
    """Inside, a signal waits; its exception is raised at the end, unless another exception is being raised."""
    if threading.current_thread() is not threading.main_thread():  # no handler runs there
        yield
        return
    _now.shields += 1
    try:
        yield
    finally:
        _now.shields -= 1
    _now.raise_pending()


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _now.number is None:
        _now.number, _now.since, _now.pending = number, time.monotonic(), True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            _now.raise_pending()
        else:
            # Between two callbacks of the loop it strikes no task, so that each can be cancelled in good order.
            loop.call_soon_threadsafe(_now.raise_pending)
    elif _now.pending:
        _now.raise_pending()
    elif not _now.shields and time.monotonic() - _now.since > PATIENCE:
        os._exit(128 + number)


def _raise_later() -> None:
    """Raise the exception once more where it struck in a finalizer, which Python does not let it leave."""
    _now.pending = True
    timer = threading.Timer(AGAIN, os.kill, (os.getpid(), _now.number))
    timer.daemon = True
    timer.start()
