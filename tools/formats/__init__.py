"""How an agent writes a tool call in text: formats, chosen by name, the rows of `FORMATS`.

- `base`: `Format`, from which all derive, and what it reads of a text
- `hermes`, `llama_json`: calls as one JSON object, which `json_call` reads
- `tags`, `fenced`: calls whose one argument stands as it is between two marks
- `pythonic`: calls as Python writes them
- `foreign`: calls in the format of another model, which are counted
"""

from collections.abc import Sequence
from typing import Any

from ..checks import look_up
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


def get_format(name: str) -> Format:
    """Return the format of a name; raises ValueError with the nearest name."""
    return look_up(FORMATS, "tool-call format", name)


def text_format(schemas: Sequence[dict[str, Any]]) -> Format:
    """Return the format that a system prompt explains best.

    That is tags if each tool has one, else calls as in Python.

    Args:
        schemas: The tools' JSON schemas.
    """
    every_tool_has_a_tag = all(_has_tag(schema["function"]) for schema in schemas)
    return FORMATS["tags" if every_tool_has_a_tag else "pythonic"]


def _has_tag(function: dict[str, Any]) -> bool:
    """Return whether a tag can call a tool, which takes one argument at a time.

    Args:
        function: The tool's JSON schema, with `name` and `parameters`.
    """
    tag_arguments = {tag.argument for tag in TAGS if tag.tool == function["name"]}
    if not tag_arguments:
        return False
    parameters = function["parameters"]
    required = set(parameters.get("required", ()))
    if not required <= tag_arguments:
        return False
    takes_tag_arguments: bool = tag_arguments <= parameters["properties"].keys()
    return takes_tag_arguments
