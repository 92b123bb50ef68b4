"""How an agent writes a tool call in text: formats, chosen by name, the rows of `FORMATS`.

- `base`: `Format`, from which all derive, and what was read of a text
- `hermes`, `llama_json`: calls as one JSON object, which `json_call` reads
- `tags`, `fenced`: calls whose one argument stands as it is between two marks
- `pythonic`: calls as Python writes them
- `foreign`: calls in the format of another model, which are counted
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..checks import pick
from .base import Format, Parsed, ToolCall
from .fenced import Fenced
from .hermes import Hermes
from .llama_json import LlamaJson
from .pythonic import Pythonic
from .tags import TAGS, Tags

__all__ = ["FORMATS", "Format", "Parsed", "ToolCall", "get_format", "text_format"]
FORMATS: dict[str, Format] = {
    style.name: style for style in (Hermes(), Tags(), Fenced(), LlamaJson(), Pythonic())
}
"""The formats by name."""


get_format = partial(pick, FORMATS, "tool-call format")
"""Return the format of a name; raises ValueError with the nearest name."""


def text_format(schemas: Sequence[dict[str, Any]]) -> Format:
    """Return the format that a system prompt teaches best for tools: tags if each has one, else calls as in Python."""
    every_tool_has_a_tag = all(_has_tag(schema["function"]) for schema in schemas)
    return FORMATS["tags" if every_tool_has_a_tag else "pythonic"]


def _has_tag(function: dict[str, Any]) -> bool:
    """Return whether a tag can call a tool: there is one of its name, and needs no other argument than the tag's."""
    arguments = {tag.argument for tag in TAGS if tag.tool == function["name"]}
    parameters = function["parameters"]
    needed = {*parameters.get("required", ())}
    return needed <= arguments <= parameters["properties"].keys() and bool(arguments)
