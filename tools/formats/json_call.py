"""A tool call as one JSON object, `{"name": "f", "arguments": {"x": 1}}`."""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from ..checks import refuse_constant
from .base import ARGUMENTS_KEY, ToolCall, check_tool

_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}


def read_json_call(
    source: str, source_name: str, argument_keys: tuple[str, ...], tools: Sequence[str]
) -> ToolCall:
    """Read a call from JSON of the form `{"name": …, "arguments": {…}}`.

    The arguments may also be a string that contains a JSON object, as some models write them.

    Args:
        source: The JSON.
        source_name: How errors call the JSON, such as "the object".
        argument_keys: The keys under which the arguments may be; the first that is there counts.
        tools: The names of the tools that exist.

    Raises:
        ValueError: The call is malformed; the message tells the agent how.
    """
    expected_form = f'{{"name": ..., "{argument_keys[0]}": {{...}}}}'
    call = load_json(source, source_name)
    if not isinstance(call, dict):
        raise ValueError(f"expected {expected_form}, got {_name_type(call)}")

    name = call.get("name")
    if not isinstance(name, str):
        raise ValueError(f'"name" must be a string; expected {expected_form}')
    check_tool(name, tools)

    present_keys = [key for key in argument_keys if key in call]
    key = present_keys[0] if present_keys else argument_keys[0]
    arguments = call.get(key)
    if isinstance(arguments, str):
        arguments = load_json(arguments, f'"{key}"')
    if not isinstance(arguments, dict):
        actual_type = _name_type(arguments) if present_keys else "missing"
        raise ValueError(
            f'"{key}" must be an object, it is {actual_type}; expected {expected_form}'
        )
    return ToolCall(name, arguments)


def spell_json_call(call: ToolCall, argument_key: str) -> str:
    r"""Return a call as a JSON object on one line.

    `</` is written as `<\/`, which JSON reads as the same, so that no argument can close a tag or a
    thought.
    """
    fields = {"name": call.name, argument_key: call.arguments}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")


def find_json_arguments(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return where the arguments of a JSON call are, without the braces around them.

    Args:
        text: A text that contains the call as JSON.
        start: The offset at which the JSON begins.
        end: The offset behind it.

    Returns:
        The offset of the first character and the offset behind the last one; None if there are no
        arguments.
    """
    opening = ARGUMENTS_KEY.search(text, start, end)
    if opening is None:
        return None
    arguments_start = opening.end()
    # The last two braces close the call and the arguments. In a malformed call they may be missing.
    arguments = text[arguments_start:end].rstrip().removesuffix("}").rstrip().removesuffix("}")
    return arguments_start, arguments_start + len(arguments)


def load_json(source: str, source_name: str) -> Any:
    """Return the value of a JSON text.

    Args:
        source: The text.
        source_name: How errors call the text.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has a number that is infinite or not a
            number.
    """
    try:
        return json.loads(source, parse_constant=refuse_constant, parse_float=_parse_finite)
    except RecursionError:
        raise ValueError(f"{source_name} is not valid JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise ValueError(f"{source_name} is not valid JSON ({error})") from None


def _parse_finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):  # as 1e999
        raise ValueError("a number is too large")
    return value


def _name_type(value: Any) -> str:
    """Return the type of a JSON value, for messages: "a list"."""
    return _TYPE_NAMES.get(type(value), "a number")
