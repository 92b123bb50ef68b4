"""How an agent writes a tool call in text: formats, which `FORMATS` has by name.

- `base`: `Format`, the base class, and `Parsed`, what it reads in a text
- `hermes`, `llama_json`: calls as one JSON object, which `json_call` reads
- `tags`, `fenced`: calls with a single argument, written verbatim between two marks
- `pythonic`: calls as Python writes them
- `foreign`: detects calls in the format of another model, which are counted
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
    """Return the format with a name; raises ValueError, with the most similar name, if none has."""
    return look_up(FORMATS, "tool-call format", name)


def text_format(schemas: Sequence[dict[str, Any]]) -> Format:
    """Choose the format that is easiest to explain in a system prompt.

    This is `tags` if each of the tools can be called with a tag, else `pythonic`.

    Args:
        schemas: The tools' JSON schemas.
    """
    every_tool_has_a_tag = all(_can_call_with_tag(schema["function"]) for schema in schemas)
    return FORMATS["tags" if every_tool_has_a_tag else "pythonic"]


def _can_call_with_tag(function: dict[str, Any]) -> bool:
    """Return whether a tool can be called with a tag, which passes one argument.

    Args:
        function: The tool's JSON schema, with `name` and `parameters`.
    """
    arguments_of_tags = {tag.argument for tag in TAGS if tag.tool == function["name"]}
    if not arguments_of_tags:
        return False
    parameters = function["parameters"]
    required = set(parameters.get("required", ()))
    has_other_required_parameters = not required <= arguments_of_tags
    if has_other_required_parameters:
        return False
    tool_takes_arguments: bool = arguments_of_tags <= parameters["properties"].keys()
    return tool_takes_arguments
