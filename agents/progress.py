"""What a command shows of the work that goes on: live lines in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..tools.progress import Work, going_on
from . import terminal

EVERY = 10.0  # seconds between plain lines; they come at longer and longer distances, up to
SELDOM, GROWTH = 600.0, 0.05  # seconds, and that share of the time that has passed
REFRESH = 4  # times a second


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A command that shows how far it is."""

    quiet: bool = False
    """Print results and errors only."""

    @contextmanager
    def shown(self) -> Iterator[Console]:
        """Show inside what `Work` goes on, in whatever thread, and yield the console of all that is no result."""
        notes = Console(quiet=True) if self.quiet else terminal.console
        plain = not (notes.quiet or notes.is_terminal)  # then standard output is for results
        with showing(Console(stderr=True, highlight=False) if plain else notes):
            yield notes


@contextmanager
def showing(console: Console) -> Iterator[None]:
    """Show inside what `Work` goes on; nothing where the console is quiet."""
    if console.quiet:
        yield
    elif console.is_terminal:
        with Live(
            console=console,
            get_renderable=lambda: rows(going_on()),
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=not console.stderr,
        ):
            yield
    else:
        over = threading.Event()
        thread = threading.Thread(target=_report, args=(console, over), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _report(console: Console, over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(min(max(EVERY, GROWTH * (time.monotonic() - began)), SELDOM)):
        if works := going_on():
            console.print(line(works), markup=False, soft_wrap=True)


def line(works: Sequence[Work]) -> str:
    """Return what goes on in one line, the outermost first."""
    return " · ".join("  ".join(filter(None, (*_parts(work), *_times(work)))) for work in works)


def rows(works: Sequence[Work]) -> RenderableType:
    """Return what goes on as a table with a row for each, which is as wide as its console."""
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.expand = True
    for work in works:
        bar = ProgressBar(work.total or None, work.done, width=16) if work.total else Text("")
        what, text = _parts(work)
        table.add_row(Text(what), bar, Text("  ".join(_times(work)), "cyan"), Text(text))
    return table


def _parts(work: Work) -> tuple[str, str]:
    return f"{work.what} {work.done}/{work.total}" if work.total else work.what, work.text


def _times(work: Work) -> Iterator[str]:
    """Yield how long it has taken, how long it will take, and how many tokens a second there are, as far as known."""
    seconds, left = work.seconds, work.left
    yield clock(seconds) if left is None else f"{clock(seconds)}, {clock(left)} left"
    if work.tokens and seconds:
        yield f"{work.tokens / seconds:,.0f} tokens/s"


def clock(seconds: float) -> str:
    """Return a duration as `1:02:03`, or `2:03` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
