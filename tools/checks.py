"""Checks of names and numbers that a user gives; long texts are shortened for messages."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NoReturn

from .base import T


def check_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    """Raise ValueError unless `low <= value <= high`.

    Args:
        name: The name of the option, for the message.
        value: The value that the user gave.
        low: The smallest allowed value.
        high: The largest allowed value.
        unit: The unit of the bounds, for the message, such as `seconds`.
    """
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g} to {high:g} {unit}")


def shorten(text: str, max_length: int = 60) -> str:
    """Cut a text for a message to `max_length` characters, the last three of which are `...`."""
    if len(text) <= max_length:
        return text
    return f"{text[: max_length - 3]}..."


def cut_middle(text: str, max_length: int) -> str:
    """Shorten a text to the first and the last half of `max_length` characters if it is longer.

    A line between the halves, which does not count, says how many characters are missing.
    """
    cut_length = len(text) - max_length
    if cut_length <= 0:
        return text
    tail_length = max_length // 2
    head = text[: max_length - tail_length]
    tail = text[-tail_length:]
    return f"{head}\n… [{cut_length} characters cut] …\n{tail}"


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and the infinities, as the `parse_constant` of `json.loads`."""
    raise ValueError(f"{name} is not JSON")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint for the message about an unknown name: the known name that is most like it.

    The case of letters does not matter. A known name that continues the unknown one after a hyphen,
    as `gsm8k-python` continues `gsm8k`, is preferred to names that are merely similar.

    Args:
        name: The unknown name.
        known: The names that exist.
        cutoff: The least similarity, 0 to 1, as `difflib.get_close_matches` measures it.

    Returns:
        `did you mean 'NAME'? ` with a trailing space, or "" if no known name is similar enough.
    """
    known_by_lowercase = {known_name.lower(): known_name for known_name in known}
    lowercase_name = name.lower()
    continuations = [key for key in known_by_lowercase if key.startswith(f"{lowercase_name}-")]
    if lowercase_name in known_by_lowercase:
        nearest = lowercase_name
    elif continuations:
        nearest = continuations[0]
    else:
        similar = get_close_matches(lowercase_name, list(known_by_lowercase), n=1, cutoff=cutoff)
        if not similar:
            return ""
        nearest = similar[0]
    return f"did you mean {known_by_lowercase[nearest]!r}? "


def look_up(table: Mapping[str, T], kind: str, name: str) -> T:
    """Look up a name that a user gave in a table.

    Args:
        table: The values by name.
        kind: What the values are, for the message, such as `tool-call format`.
        name: The name that the user gave.

    Raises:
        ValueError: The name is not in the table; the message suggests the nearest one.
    """
    if name not in table:
        hint = did_you_mean(name, table, cutoff=0.0)
        raise ValueError(f"unknown {kind} {name!r}; {hint}known: {', '.join(table)}")
    return table[name]
