"""Fields of requests that a user names: `--request NAME=VALUE`, where values are JSON, numbers or bare words."""

import json
import tomllib
from collections.abc import Iterable
from typing import Any

from ...tools.checks import refuse_constant

_NO_NUMBERS = ("nan", "inf", "infinity")
NONE = "none"  # leaves a field out; as JSON, `"none"`, it is a word


class LeftOut:
    """The value of a field that is not sent."""


LEFT_OUT = LeftOut()


def request_fields(items: Iterable[str]) -> dict[str, Any]:
    """Return the values of `name=value`: JSON, else a value of TOML, else the text; `LEFT_OUT` for `none`.

    Raises ValueError where an item has no name and `=`, begins like JSON and is none, or is no number that JSON has.
    """
    return dict(map(_field, items))


def _field(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    name, text = name.strip(), text.strip()
    if not (name and equals):
        raise ValueError(
            f"--request {item!r} is not of the form name=value, such as reasoning_effort=low"
        )
    if text == NONE:
        return name, LEFT_OUT
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        if text.startswith(("{", "[")):
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            what = f"--request {item!r:.200} begins with {text[0]!r} and is not JSON: {why}"
            raise ValueError(
                f'{what}; quote it, as in --request \'thinking={{"type": "enabled"}}\''
            ) from None
        value = _toml(text)
    if text.lstrip("+-").casefold() in _NO_NUMBERS or not _is_json(value):
        raise ValueError(
            f"--request {item!r:.200} holds a number that JSON cannot carry; give a finite one"
        )
    return name, value


def _toml(text: str) -> Any:
    """Return a number, truth value or quoted text as TOML writes it, else the text: a bare word, or a date."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
