"""The terminal of a command: its console, its mistakes in one line, how far it is, and the signals that end it.

Of the work that goes on a terminal shows live lines, and anything else gets a plain line now and then.

`endings` and `shield` make the signals that end a command an exception, which waits until a change that must be whole
is over. `endings()` is for the main thread of a command line. Without it signals do what they always do, and `shield()`
nothing. What a command leaves behind is then up to those who catch a `KeyboardInterrupt` on its way out.
"""

import asyncio
import io
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from ...tools import ToolFailure
from ...tools.plugins import describe_error, user_code_place
from ...tools.progress import Progress, current_work
from ...tools.python import LevelRefused
from ..engine import EngineFailure

EXTRA = (
    "jinja2",
    "peft",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
)  # what `turngym[train]` brings
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PATIENCE = 5.0  # seconds after which one more signal ends the process at once; checkpoints are whole at any instant
AGAIN = 0.05  # seconds until an exception that Python dropped is raised again
EVERY = 10.0  # seconds between plain lines; they come at longer and longer distances, up to
SELDOM, GROWTH = 600.0, 0.05  # seconds, and that share of the time that has passed
REFRESH = 4  # times a second
MEMORY = (
    "can't allocate memory",
    "can't start new thread",
    "Cannot allocate memory",
    "failed to map segment",
)
_HIDDEN = re.compile(  # what moves the cursor, gives orders to a terminal, or turns the order of letters
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
MISTAKES = (ValueError, OSError, LookupError, TypeError, RecursionError, OverflowError)


def plain(text: str) -> str:
    """Return a text with signs for a terminal written out, as in `\\x1b`; new lines and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class SafeConsole(Console):
    """A console on which the texts of files, servers and agents give no orders: only its own colours do."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(plain(text), **how)  # before widths are measured

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain(text), style, control)


class PlainFormatter(logging.Formatter):
    """Writes a warning as `SafeConsole` does."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


console = SafeConsole(highlight=False)


@contextmanager
def mistakes(
    kinds: tuple[type[Exception], ...] = MISTAKES, remedy: str = "try again"
) -> Iterator[None]:
    """Report a wrong input, or a tool or engine that cannot run, in one line and exit with status 2 or its own.

    `remedy` is what the user can do after a failure of the engine. TURNGYM_TRACEBACK=1 shows the traceback.
    """
    try:
        yield
    except BrokenPipeError:  # who reads the output has left; rich, too, ends with status 1 then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        message = None if os.environ.get("TURNGYM_TRACEBACK") else said_of(error, kinds, remedy)
        if _now.number is not None and (message is None or isinstance(error, ImportError)):
            raise SystemExit(
                128 + _now.number
            ) from None  # a signal struck, say, an import, which made that of it
        if message is None:
            raise
        refuse(message, getattr(error, "exit_status", 2))


def said_of(
    error: Exception, kinds: tuple[type[Exception], ...] = MISTAKES, remedy: str = "try again"
) -> str | None:
    """Return the line that reports an error; None for a fault of turngym's own."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in MEMORY):
        about = f" ({first_line(error)})" if str(error) else ""
        return f"there is not enough memory{about}; free some, raise the limit (ulimit -v), or make less at a time"
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
        return f"{error.name} is not installed; policies need the training extra: pip install 'turngym[train]'"
    if user_code_place(
        error
    ):  # an environment, tool or method of the user's, which may raise anything
        return describe_error(error)
    if isinstance(
        error, ImportError
    ):  # a package of an extra is missing or broken; the message says which
        return None if isinstance(error, ModuleNotFoundError) else str(error)
    if isinstance(error, ToolFailure):
        way = "; on the command line: --option level=NAME"
        return f"{error}{way if isinstance(error, LevelRefused) else ''}"
    if isinstance(error, EngineFailure):
        return f"{error}; {remedy}"
    if not isinstance(error, kinds):
        return None
    if isinstance(error, KeyError) and error.args:  # Python puts its message in quotes
        return str(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file, or the output'}: {error.strerror}"
    return str(error)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


@contextmanager
def usage() -> Iterator[None]:
    """Report in one line what tyro refuses, which it writes as a panel, and exit with its status."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            yield
    except SystemExit as left:
        if not left.code:
            raise
        rows = Text.from_ansi(said.getvalue()).plain.splitlines()
        text = " ".join(
            row.strip("│ ") for row in rows[1:] if not row.startswith("╰")
        )  # the first one is a title
        refuse(
            "; ".join(" ".join(part.split()) for part in re.split("[─-]{5,}", text) if part.strip())
        )


def refuse(message: str, status: int = 2) -> NoReturn:
    line = " ".join(filter(None, (part.strip() for part in message.split("\n"))))
    SafeConsole(stderr=True, highlight=False, soft_wrap=True).print(
        Text.assemble(("error: ", "bold red"), plain(line))
    )
    sys.exit(status)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A command that shows how far it is."""

    quiet: bool = False
    """Print results and errors only."""

    @contextmanager
    def shown(self) -> Iterator[Console]:
        """Show inside what `Progress` goes on, in whatever thread, and yield the console of all that is no result."""
        notes = SafeConsole(quiet=True) if self.quiet else console
        lines = not (notes.quiet or notes.is_terminal)  # then standard output is for results
        with showing(SafeConsole(stderr=True, highlight=False) if lines else notes):
            yield notes


@contextmanager
def showing(screen: Console) -> Iterator[None]:
    """Show inside what `Progress` goes on; nothing where the screen is quiet."""
    if screen.quiet:
        yield
    elif screen.is_terminal:
        with Live(
            console=screen,
            get_renderable=lambda: rows(current_work()),
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=not screen.stderr,
        ):
            yield
    else:
        over = threading.Event()
        thread = threading.Thread(target=_report, args=(screen, over), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _report(screen: Console, over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(min(max(EVERY, GROWTH * (time.monotonic() - began)), SELDOM)):
        if works := current_work():
            screen.print(line(works), markup=False, soft_wrap=True)


def line(works: Sequence[Progress]) -> str:
    """Return what goes on in one line, the outermost first."""
    return " · ".join("  ".join(filter(None, (*_parts(work), *_times(work)))) for work in works)


def rows(works: Sequence[Progress]) -> RenderableType:
    """Return what goes on as a table with a row for each, which is as wide as its console."""
    columns = (Column(no_wrap=True) for _ in range(3))
    table = Table.grid(
        *columns, Column(no_wrap=True, overflow="ellipsis", ratio=1), padding=(0, 1), expand=True
    )
    for work in works:
        bar = ProgressBar(work.total or None, work.done, width=16) if work.total else Text("")
        what, text = _parts(work)
        table.add_row(Text(what), bar, Text("  ".join(_times(work)), "cyan"), Text(text))
    return table


def _parts(work: Progress) -> tuple[str, str]:
    return f"{work.what} {work.done}/{work.total}" if work.total else work.what, work.text


def _times(work: Progress) -> Iterator[str]:
    seconds, left = work.seconds, work.seconds_left
    yield clock(seconds) if left is None else f"{clock(seconds)}, {clock(left)} left"
    if work.tokens and seconds:
        yield f"{work.tokens / seconds:,.0f} tokens/s"


def clock(seconds: float) -> str:
    """Return a duration as `1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )


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
        if self.pending and not self.shields and self.number is not None:
            self.pending = False
            raise Interrupted(self.number)


_now = _Now()


@contextmanager
def endings() -> Iterator[None]:
    """Inside, `SIGNALS` raise `Interrupted` in the main thread, once, behind any `shield()`.

    SIGHUP stays ignored where it is: `nohup` asked for it.

    Further signals are ignored for `PATIENCE` seconds, so that impatience does not stop the last checkpoint. Raises
    SystemExit: in place of a KeyboardInterrupt that nobody caught, with status 128 and the signal's number (130 for
    SIGINT, 143 for SIGTERM); ValueError: this is not the main thread.
    """
    global _now
    kept = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else []
    before = {number: signal.signal(number, _on_signal) for number in SIGNALS if number not in kept}
    hook, outer = sys.unraisablehook, _now

    def on_dropped(dropped: Any) -> None:
        if not isinstance(dropped.exc_value, Interrupted):
            hook(dropped)
            return
        _now.pending = True  # it struck in a finalizer, which Python does not let it leave: it is raised once more
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), _now.number))
        timer.daemon = True
        timer.start()

    _now, sys.unraisablehook = _Now(), on_dropped
    try:
        yield
        _now.raise_pending()
    except KeyboardInterrupt as stop:
        raise SystemExit(
            stop.status if isinstance(stop, Interrupted) else 128 + signal.SIGINT
        ) from None
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
