"""How an agent writes a tool call in text: formats, chosen by name, the rows of `FORMATS`.

- `core`: `Format`, from which all derive; `Hermes` and `LlamaJson`, calls as one JSON object
- `delimited`: `Tags` and `Fenced`, calls between two marks
- `pythonic`: `Pythonic`, calls as Python writes them
"""

from functools import partial

from ..core import pick
from .core import Format, Hermes, LlamaJson, Parsed, ToolCall
from .delimited import Fenced, Tags
from .pythonic import Pythonic

__all__ = ["FORMATS", "Format", "Parsed", "ToolCall", "get_format"]

FORMATS: dict[str, Format] = {style.name: style for style in (Hermes(), Tags(), Fenced(), LlamaJson(), Pythonic())}
"""The formats by name."""

get_format = partial(pick, FORMATS, "tool-call format")
"""Return the format of a name; raises ValueError with the nearest name."""
