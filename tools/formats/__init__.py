"""How an agent writes a tool call in text: formats, chosen by name, the rows of `FORMATS`.

- `core`: `Format`, from which all derive; `Hermes` and `LlamaJson`, calls as one JSON object
- `delimited`: `Tags` and `Fenced`, calls between two marks
- `pythonic`: `Pythonic`, calls as Python writes them
"""

import difflib

from .core import Format, Hermes, LlamaJson, Parsed, ToolCall
from .delimited import Fenced, Tags
from .pythonic import Pythonic

__all__ = ["FORMATS", "Format", "Parsed", "ToolCall", "get_format"]

FORMATS: dict[str, Format] = {style.name: style for style in (Hermes(), Tags(), Fenced(), LlamaJson(), Pythonic())}
"""The formats by name."""


def get_format(name: str) -> Format:
    """Return the format of this name; raises ValueError with the nearest name."""
    if name in FORMATS:
        return FORMATS[name]
    nearest = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0)
    raise ValueError(f"unknown tool-call format {name!r}; did you mean {nearest[0]!r}? known: {', '.join(FORMATS)}")
