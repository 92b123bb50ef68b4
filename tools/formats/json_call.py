"""A tool call as one JSON object: read strictly, and spelled."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from ..checks import refuse_constant
from .base import _ARGUMENTS, ToolCall, check_tool


def _in_object(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return what stands between the braces of the arguments of a call as JSON, which is all of `text[start:end]`."""
    if (found := _ARGUMENTS.search(text, start, end)) is None:
        return None
    body = text[found.end() : end].rstrip().removesuffix("}").rstrip().removesuffix("}")
    return found.end(), found.end() + len(body)


def read_json_call(source: str, what: str, keys: tuple[str, ...], tools: Sequence[str]) -> ToolCall:
    """Return the call `{"name": …, KEY: {…}}`, where KEY is the first of `keys` that the object has.

    The arguments may also be a string that holds a JSON object, as some models write it. Raises ValueError.
    """
    form = f'{{"name": ..., "{keys[0]}": {{...}}}}'
    if not isinstance(call := load_json(source, what), dict):
        raise ValueError(f"expected {form}, got {_kind(call)}")
    name, key = call.get("name"), next((key for key in keys if key in call), keys[0])
    if not isinstance(name, str):
        raise ValueError(f'"name" must be a string; expected {form}')
    check_tool(name, tools)
    if isinstance(arguments := call.get(key), str):
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
        return json.loads(source, parse_constant=refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{what} is not valid JSON ({reason})") from None


def _finite(digits: str) -> float:
    if not isfinite(value := float(digits)):
        raise ValueError("a number is too large")
    return value


def _kind(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
