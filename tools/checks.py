"""Checks of names and numbers that a user gives, and texts cut to a length for messages."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NoReturn

from .base import T


def check_range(name: str, value: float, low: float, high: float, unit: str) -> None:
    """Raise ValueError unless `value` lies between two bounds, both included; `unit` is for the message."""
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low:g} to {high:g} {unit}")


def brief(text: str, most: int = 60) -> str:
    """Return a text as messages show it: at most so many characters, of a longer one the head."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cut_middle(text: str, most: int) -> str:
    """Return the head and the tail of a text that is longer than so many characters, and how many are cut."""
    cut, tail = len(text) - most, most // 2
    return f"{text[: most - tail]}\n… [{cut} characters cut] …\n{text[-tail:]}" if cut > 0 else text


def refuse_constant(name: str) -> NoReturn:
    """Raise ValueError for NaN and infinities: for `parse_constant` of `json.loads`."""
    raise ValueError(f"{name} is not JSON")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `did you mean '…'? ` with the nearest known name, in whatever case; "" if none is near.

    A name that goes on behind the given one with `-`, as `gsm8k-python` does behind `gsm8k`, is nearer than others.
    """
    by_lower = {other.lower(): other for other in known}
    lower = name.lower()
    longer = [other for other in by_lower if other.startswith(f"{lower}-")]
    near = (
        [lower]
        if lower in by_lower
        else longer or get_close_matches(lower, list(by_lower), n=1, cutoff=cutoff)
    )
    return f"did you mean {by_lower[near[0]]!r}? " if near else ""


def pick(known: Mapping[str, T], what: str, name: str) -> T:
    """Return what is known under a name; raises ValueError with the nearest name."""
    if name not in known:
        nearest = did_you_mean(name, known, cutoff=0.0)
        raise ValueError(f"unknown {what} {name!r}; {nearest}known: {', '.join(known)}")
    return known[name]
