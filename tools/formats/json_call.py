"""Calls written as one JSON object: the formats of Hermes and Qwen, and of Llama 3."""

import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from .core import Format, ToolCall, check_tool, closing, opens

# A string that is not closed reaches to the end, so that no brace in it counts before its end is written.
_MARKS = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)|[{}]', re.DOTALL)


class Hermes(Format):
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: one JSON object between tags."""

    name = "hermes"
    opener, closer = "<tool_call>", "</tool_call>"
    opening = opens(opener)
    closers = (closer,)
    native = True

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        end = text.find(self.closer, opening.end())
        return None if end < 0 else end + len(self.closer)

    def _unclosed(self, opening: re.Match[str]) -> str:
        return f"{self.opener} is never closed by {self.closer}"

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        body = text[opening.end() : -len(self.closer)]
        return read_json_call(body, "the text between the tags", ("arguments",), tools)

    def _spell(self, call: ToolCall) -> str:
        return f"{self.opener}\n{spell_json_call(call, 'arguments')}\n{self.closer}"


class LlamaJson(Format):
    """`{"name": …, "parameters": {…}}`: a bare object that begins with its name or its arguments; the first one counts.

    What stands in front of it (`<|python_tag|>`, prose) and behind it (`; {…}`) does not count.
    """

    name = "llama-json"
    opening = opens(r'\{\s*+"(?:(?:name|parameters|arguments)"\s*+:|type"\s*+:\s*+"function")')
    closers = ("}",)
    native = True

    def _end(self, text: str, opening: re.Match[str]) -> int | None:
        return closing(text, opening.start(), _MARKS)

    def _unclosed(self, opening: re.Match[str]) -> str:
        return "the object is never closed, or too large"

    def _read(self, text: str, opening: re.Match[str], tools: Sequence[str]) -> ToolCall:
        return read_json_call(text[opening.start() :], "the object", ("parameters", "arguments"), tools)

    def _spell(self, call: ToolCall) -> str:
        return spell_json_call(call, "parameters")


def read_json_call(source: str, what: str, keys: tuple[str, ...], tools: Sequence[str]) -> ToolCall:
    """Return the call `{"name": …, KEY: {…}}`, where KEY is the first of `keys` that the object has.

    The arguments may also be a string that holds a JSON object, as some models write it. `what` names the source.
    Raises ValueError that says what is wrong.
    """
    form = f'{{"name": ..., "{keys[0]}": {{...}}}}'
    call = load_json(source, what)
    if not isinstance(call, dict):
        raise ValueError(f"expected {form}, got {_kind(call)}")
    name, key = call.get("name"), next((key for key in keys if key in call), keys[0])
    if not isinstance(name, str):
        raise ValueError(f'"name" must be a string; expected {form}')
    check_tool(name, tools)
    arguments = call.get(key)
    if isinstance(arguments, str):
        arguments = load_json(arguments, f'"{key}"')
    if not isinstance(arguments, dict):
        found = _kind(arguments) if key in call else "missing"
        raise ValueError(f'"{key}" must be an object, it is {found}; expected {form}')
    return ToolCall(name, arguments)


def spell_json_call(call: ToolCall, key: str) -> str:
    """Return the object on one line; `</` is escaped so that no argument can close a tag or a thought."""
    body = json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False, allow_nan=False)
    return body.replace("</", "<\\/")


def load_json(source: str, what: str) -> Any:
    """Return the value of a JSON text; raises ValueError where it is none, or its numbers do not fit."""
    try:
        return json.loads(source, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{what} is not valid JSON ({reason})") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError("a number is too large")
    return value


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
