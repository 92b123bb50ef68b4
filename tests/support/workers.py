"""Tasks for processes of their own: some die, some raise."""

import os
import signal
import time
from pathlib import Path


def double(number: int) -> int:
    """Return twice a number."""
    return 2 * number


def die(marks: Path, times: int, how: int = signal.SIGKILL) -> str:
    """Die the first so many times, each leaving a mark in a file; then return how often it was begun."""
    with marks.open("a") as file:
        file.write("x")
    begun = len(marks.read_text())
    if begun <= times:
        os.kill(os.getpid(), how)
        time.sleep(60)
    return f"begun {begun} times"


def end(status: int) -> None:
    """End the process in the middle of a task."""
    os._exit(status)


def refuse(text: str) -> None:
    """Raise a ValueError."""
    raise ValueError(text)


def raise_local() -> None:
    """Raise an error that cannot be pickled."""

    class LocalError(Exception):
        pass

    raise LocalError("of a class that nobody else can import")


def wait_for(path: Path) -> str:
    """Return once a file is there."""
    while not path.exists():
        time.sleep(0.01)
    return path.name


def stay(marks: Path) -> None:
    """Write the number of this process down, and do nothing for a minute."""
    marks.write_text(str(os.getpid()))
    time.sleep(60)
