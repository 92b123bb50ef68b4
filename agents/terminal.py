"""The console of the commands, and errors in one line."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from ..tools import ToolFailure
from ..tools.plugins import place, raised
from ..tools.python import LevelRefused
from .engine import EngineFailure

EXTRA = ("jinja2", "peft", "safetensors", "tokenizers", "torch", "transformers")  # what `turngym[train]` brings
console = Console(highlight=False)


@contextmanager
def mistakes(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError, LookupError, TypeError, RecursionError, OverflowError),
    remedy: str = "try again",
) -> Iterator[None]:
    """Report a wrong input, or a tool or engine that cannot run, in one line and exit with status 2.

    `remedy` is what the user can do after a failure of the engine. TURNGYM_TRACEBACK=1 shows the traceback.
    """
    try:
        yield
    except BrokenPipeError:  # who reads the output has left; rich, too, ends with status 1 then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        message = None if os.environ.get("TURNGYM_TRACEBACK") else _message(error, kinds, remedy)
        if message is None:
            raise
        refuse(message)


def _message(error: Exception, kinds: tuple[type[Exception], ...], remedy: str) -> str | None:
    """Return the line that reports an error; None for a fault of turngym's own."""
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRA:
        return f"{error.name} is not installed; policies need the training extra: pip install 'turngym[train]'"
    if place(error):  # an environment, tool or method of the user's, which may raise anything
        return raised(error)
    if isinstance(error, ImportError):  # a package of an extra is missing or broken; the message says which
        return None if isinstance(error, ModuleNotFoundError) else str(error)
    if isinstance(error, ToolFailure):
        way = "; on the command line: --option level=NAME, with the recipe's other options, as it replaces all of them"
        return f"{error}{way if isinstance(error, LevelRefused) else ''}"
    if isinstance(error, EngineFailure):
        return f"{error}; {remedy}"
    return _text(error) if isinstance(error, kinds) else None


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
        text = " ".join(row.strip("│ ") for row in rows[1:] if not row.startswith("╰"))  # the first one is a title
        refuse("; ".join(" ".join(part.split()) for part in re.split("[─-]{5,}", text) if part.strip()))


def _text(error: Exception) -> str:
    """Return the message of an error, without the numbers and quotes that Python adds to some."""
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file, or the output'}: {error.strerror}"
    return str(error)


def refuse(message: str) -> NoReturn:
    """Print an error and exit with status 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), message))
    sys.exit(2)
