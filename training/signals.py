"""SIGTERM and SIGINT as an exception, which waits until a change that must be whole is over.

`endings()` is for the main thread of a command line. Without it signals do what they always do, and `shield()` nothing.
What a command leaves behind is then up to those who catch a `KeyboardInterrupt` on its way out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PATIENCE = 5.0  # seconds after which one more signal ends the process at once; checkpoints are whole at any instant
AGAIN = 0.05  # seconds until an exception that Python dropped is raised again


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
