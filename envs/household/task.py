"""The sentence that states a task, read: what to find, what to do with it, where it goes."""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "Your task is to:"

_TREATED = {"clean": "clean", "heat": "hot", "hot": "hot", "cool": "cool"}
_SENTENCES = (
    r"put (?P<number>two) (?P<kind>\w+) in (?P<target>\w+)",
    r"find (?P<number>two) (?P<kind>\w+) and put them in (?P<target>\w+)",
    r"put (?:a|some) (?:(?P<state>clean|hot|cool) )?(?P<kind>\w+) (?:in|on) (?P<target>\w+)",
    r"(?P<state>clean|heat|cool) some (?P<kind>\w+) and put it in (?P<target>\w+)",
    r"find some (?P<kind>\w+) and put it in (?P<target>\w+)",
    r"examine the (?P<kind>\w+) with the (?P<lamp>\w+)",
    r"look at (?P<kind>\w+) under the (?P<lamp>\w+)",
)


@dataclass(frozen=True)
class Task:
    """What a sentence asks for.

    Args:
        kind: The kind of thing, as in `mug`.
        target: The kind of receptacle it goes to; empty where it is to be looked at.
        state: `clean`, `hot`, `cool` or empty.
        number: How many things.
        lamp: The kind of lamp to look at the thing with; empty where it is to be put somewhere.
    """

    kind: str
    target: str = ""
    state: str = ""
    number: int = 1
    lamp: str = ""


def read_task(text: str) -> Task:
    """Return the task that the first text of a game states.

    Raises:
        ValueError: it states none, or in words that ALFWorld's templates do not have.
    """
    _, mark, rest = text.partition(MARK)
    sentence = rest.strip().partition("\n")[0].rstrip(". ")
    if not mark:
        raise ValueError(f"the text {text[:60]!r} states no task: it has no {MARK!r}")
    for pattern in _SENTENCES:
        if match := re.fullmatch(pattern, sentence):
            found = {name: value or "" for name, value in match.groupdict().items()}
            return Task(
                found["kind"],
                found.get("target", ""),
                _TREATED.get(found.get("state", ""), ""),
                2 if found.get("number") else 1,
                found.get("lamp", ""),
            )
    raise ValueError(f"the task {sentence!r} is in none of ALFWorld's forms, such as 'put a clean mug in cabinet'")
