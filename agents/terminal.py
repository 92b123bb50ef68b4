"""The terminal of the commands: one console, and one line for a user's mistake."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from ..tools import ToolFailure
from ..tools.python import LevelRefused
from .engine import EngineFailure

EXTRA = ("jinja2", "peft", "safetensors", "tokenizers", "torch", "transformers")  # what `turngym[train]` brings
console = Console(highlight=False)


@contextmanager
def mistakes(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError, LookupError, TypeError),
    way_on: str = "try again",
) -> Iterator[None]:
    """Answer a mistake, or a tool or engine that cannot run, with one line.

    `way_on` is what to do when the engine can run again. TURNGYM_TRACEBACK=1 shows where the mistake was found.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        refuse(f"{error.name} is not installed; policies need the training extra: pip install 'turngym[train]'")
    except ImportError as error:  # a package of an extra is missing or broken; the message says which
        if os.environ.get("TURNGYM_TRACEBACK"):
            raise
        refuse(str(error))
    except kinds as error:
        if os.environ.get("TURNGYM_TRACEBACK"):
            raise
        refuse(str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error))
    except ToolFailure as failure:
        if os.environ.get("TURNGYM_TRACEBACK"):
            raise
        way = "; here: --option level=NAME, with a recipe's options beside it, which it replaces"
        refuse(f"{failure}{way if isinstance(failure, LevelRefused) else ''}")
    except EngineFailure as failure:
        if os.environ.get("TURNGYM_TRACEBACK"):
            raise
        refuse(f"{failure}; {way_on}")


def refuse(message: str) -> NoReturn:
    """Say what is wrong and leave with status 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text.assemble(("error: ", "bold red"), message))
    sys.exit(2)
