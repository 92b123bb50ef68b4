"""Checks of names and numbers that a user gives, and texts shortened for messages."""

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


def shorten(text: str, most: int = 60) -> str:
    """Return a text of at most `most` characters for a message: a longer one ends in `...`."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3]}..."


def cut_middle(text: str, most: int) -> str:
    """Shorten a text with more than `most` characters to its head and its tail.

    A line between the two says how many characters are missing; it comes on top of `most`.
    """
    excess = len(text) - most
    if excess <= 0:
        return text
    tail_length = most // 2
    head = text[: most - tail_length]
    tail = text[-tail_length:]
    return f"{head}\n… [{excess} characters cut] …\n{tail}"


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and the infinities, as the `parse_constant` of `json.loads`."""
    raise ValueError(f"{name} is not JSON")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint for the message about an unknown name: the known name that is most like it.

    Upper and lower case do not matter. A known name that continues the given one after a hyphen,
    as `gsm8k-python` continues `gsm8k`, is preferred to names that are merely similar.

    Args:
        name: The unknown name.
        known: The names that exist.
        cutoff: The least similarity, 0 to 1, as `difflib.get_close_matches` measures it.

    Returns:
        `did you mean 'NAME'? `, with the space behind it, or "" if no name is similar enough.
    """
    known_by_lower_case = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    if wanted in known_by_lower_case:
        matches = [wanted]
    else:
        matches = [key for key in known_by_lower_case if key.startswith(f"{wanted}-")]
        if not matches:
            matches = get_close_matches(wanted, list(known_by_lower_case), n=1, cutoff=cutoff)
    if not matches:
        return ""
    return f"did you mean {known_by_lower_case[matches[0]]!r}? "


def look_up(table: Mapping[str, T], kind: str, name: str) -> T:
    """Look up a name that a user gave in a table.

    Args:
        table: The values by name.
        kind: What the values are, for the message, such as `tool-call format`.
        name: The name that the user gave.

    Raises:
        ValueError: The table lacks the name; the message suggests the nearest one.
    """
    if name not in table:
        hint = did_you_mean(name, table, cutoff=0.0)
        raise ValueError(f"unknown {kind} {name!r}; {hint}known: {', '.join(table)}")
    return table[name]
