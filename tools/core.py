"""What an agent can hold: a tool has a name, a JSON schema, `call`, and a life cycle of `reset`, `fork`, `close`.

A call never raises because of what the agent wrote: that is a `ToolResult` the agent can read. Only `ToolFailure`, the
tool itself being unable to run, leaves a call as an exception, so an infrastructure fault is never scored as play.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NoReturn, Protocol, Self, TypeVar, runtime_checkable

T = TypeVar("T")


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


def brief(text: str, most: int = 60) -> str:
    """Return a text as messages show it: at most so many characters, of a longer one the head."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cut_middle(text: str, most: int) -> str:
    """Return the head and the tail of a text that is longer than so many characters, and how many are cut."""
    cut, tail = len(text) - most, most // 2
    return f"{text[: most - tail]}\n… [{cut} characters cut] …\n{text[-tail:]}" if cut > 0 else text


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities: for `parse_constant` of `json.loads`."""
    raise ValueError(f"{name} is not JSON")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `did you mean '…'? ` with the nearest known name, in whatever case; "" if none is near.

    A name that goes on behind the given one with `-`, as `gsm8k-python` does behind `gsm8k`, is nearer than others.
    """
    by_lower = {other.lower(): other for other in known}
    lower = name.lower()
    longer = [other for other in by_lower if other.startswith(f"{lower}-")]
    near = (
        [lower]
        if lower in by_lower
        else longer or get_close_matches(lower, list(by_lower), n=1, cutoff=cutoff)
    )
    return f"did you mean {by_lower[near[0]]!r}? " if near else ""


def pick(known: Mapping[str, T], what: str, name: str) -> T:
    """Return what is known under a name; raises ValueError with the nearest name."""
    if name not in known:
        nearest = did_you_mean(name, known, cutoff=0.0)
        raise ValueError(f"unknown {what} {name!r}; {nearest}known: {', '.join(known)}")
    return known[name]


class Overdue(RuntimeError):
    """A call did not answer in time and was left behind."""


def start(work: Callable[[], T], name: str) -> "Future[T]":
    """Begin `work` on a daemon thread called `name` and return its future, which may be forgotten."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()  # so that nobody can cancel what cannot be stopped
    threading.Thread(target=call, name=name, daemon=True).start()
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
