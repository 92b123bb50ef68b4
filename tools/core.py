"""What an agent can hold: a tool has a name, a JSON schema, `call`, and a life cycle of `reset`, `fork`, `close`.

A call never raises because of what the agent wrote: that is a `ToolResult` the agent can read. Only `ToolFailure`, the
tool itself being unable to run, leaves a call as an exception, so an infrastructure fault is never scored as play.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

T = TypeVar("T")
Call = Callable[[], None]

IDLE = 10.0  # seconds that a thread waits for its next call
KEPT = 64  # the most threads that wait


class Status(StrEnum):
    """How a call ended, seen from the tool."""

    OK = "ok"  # it ran to its end
    ERROR = "error"  # the agent's mistake: bad arguments, or its code raised
    TIMEOUT = "timeout"  # it used up its wall-clock time
    MEMORY = "memory"  # it asked for more memory than allowed
    OUTPUT = "output"  # it wrote more than the hard cap and was stopped
    KILLED = "killed"  # its process died: a signal, `os._exit`, a crash in native code
    REJECTED = "rejected"  # it was not run at all


@dataclass(frozen=True)
class ToolResult:
    """What a call gives back; `text` is for the agent."""

    status: Status
    text: str


class ToolFailure(RuntimeError):
    """The tool itself could not run, through no fault of the agent."""


@runtime_checkable
class Tool(Protocol):
    """Anything an agent can call. Methods may be called from any thread, one at a time per tool."""

    @property
    def name(self) -> str:
        """The name by which the agent calls it."""

    @property
    def schema(self) -> dict[str, Any]:
        """The OpenAI form: `{"type": "function", "function": {"name", "description", "parameters"}}`."""

    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one call; raises `ToolFailure` when the tool itself cannot run."""

    def reset(self) -> None:
        """Start a new episode with fresh state."""

    def fork(self) -> "Tool":
        """Return an independent live copy with the same state: later calls to one never affect the other."""

    def close(self) -> None:
        """Release what the tool holds; it may be called twice."""


class StatelessTool:
    """The life cycle of a tool that keeps no state."""

    def reset(self) -> None:
        """Nothing to reset."""

    def fork(self) -> Self:
        """Return the tool itself."""
        return self

    def close(self) -> None:
        """Nothing to release."""


def check_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    """Raise ValueError unless `value` lies between two bounds, both included; `unit` is for the message."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g} to {high:g} {unit}")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `did you mean '…'? ` with the nearest known name; nothing where none is near."""
    near = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}? " if near else ""


def pick(known: Mapping[str, T], what: str, name: str) -> T:
    """Return what is known under a name; raises ValueError with the nearest name."""
    if name not in known:
        nearest = did_you_mean(name, known, cutoff=0.0)
        raise ValueError(f"unknown {what} {name!r}; {nearest}known: {', '.join(known)}")
    return known[name]


class Overdue(RuntimeError):
    """A call did not answer in time and was left behind."""


class _Worker(threading.Thread):
    """Makes the calls that come to its inbox, until None or nothing does."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Call | None] = SimpleQueue()

    def run(self) -> None:
        call = self.inbox.get()
        while call is not None:
            call()
            del call  # and with it all that it holds, while this waits
            call = self.next() if len(_idle) < KEPT else None

    def next(self) -> Call | None:
        """Return the next call that comes; None where there has been none for a while."""
        _idle.append(self)
        while True:
            try:
                return self.inbox.get(timeout=IDLE)
            except Empty:
                with suppress(ValueError):  # somebody has taken it and is about to put a call there
                    _idle.remove(self)
                    return None


_idle: list[_Worker] = []


def start(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` on a daemon thread called `name` and return its future, which may be forgotten."""
    future: Future[T] = Future()

    def call() -> None:
        threading.current_thread().name = name
        try:
            future.set_result(Context().run(work))  # context variables are as on a new thread
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()  # so that nobody can cancel what cannot be stopped
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker(name)
        worker.start()
    worker.inbox.put(call)
    return future


def within(seconds: float, work: Callable[[], T], name: str) -> T:
    """Return what `work` returns, or raise what it raises; `Overdue` where it takes longer than `seconds`."""
    future = start(work, name)
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # its own
            raise
        raise Overdue(f"{name} did not answer within {seconds:g} s") from None


def _retire() -> None:
    """End the threads that wait, since a forked process would know of them and not have them."""
    with suppress(IndexError):
        while True:
            worker = _idle.pop()
            worker.inbox.put(None)
            worker.join()


os.register_at_fork(before=_retire, after_in_child=_idle.clear)
