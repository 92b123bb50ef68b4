"""Worked examples (`shots`) in front of a question: an expert's play of other tasks, or conversations of a file.

They are messages of an episode's opening, behind its system prompt, so everyone who reads the opening gets them:
rollouts, evaluations, servers, players, warm-ups. A question is never among its own examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .rows import json_rows
from .tasks import Message

Example = tuple[Message, ...]
"""A conversation that the user begins and the assistant ends."""
_PARTS = ("role", "content")
MOST = 64  # shots
ROLES = {
    "user": ("assistant",),
    "assistant": ("user", "tool"),
    "tool": ("assistant",),
}  # who may speak behind whom


@dataclass(frozen=True)
class Examples:
    """Worked examples, of which `shots` stand in front of a question; one more serves those whose own is among them."""

    found: tuple[Example, ...] = ()
    shots: int = 0

    def before(self, messages: list[Message]) -> list[Message]:
        """Return the messages of an opening with the examples between system prompt and question."""
        asked = [message["content"] for message in messages if message["role"] != "system"]
        others = [example for example in self.found if example[0]["content"] not in asked][
            : self.shots
        ]
        system = len(messages) - len(asked)
        return [
            *messages[:system],
            *(message for example in others for message in example),
            *messages[system:],
        ]


def examples_of(file: Path) -> Examples:
    """Return the worked examples of a JSONL file of conversations.

    Raises FileNotFoundError where there is no such file; ValueError where a line is no conversation that the user
    begins and the assistant ends, or there are too many.
    """
    found = tuple(_as_example(messages, where) for where, messages in conversations(file))
    if len(found) > MOST:
        raise ValueError(
            f"shots is {str(file)!r}, which holds {len(found)} conversations; at most {MOST} fit"
        )
    return Examples(found, len(found))


def conversations(file: Path) -> Iterator[tuple[str, list[Message]]]:
    """Yield where each conversation of a JSONL file is, and its messages. Raises as `examples_of` does."""
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}; name a JSONL file whose lines hold `messages`"
        )
    number = 0
    for number, row in json_rows(file):
        messages = row.get("messages") if isinstance(row, dict) else None
        said: list[Any] = messages if isinstance(messages, list) and messages else [None]
        if not all(
            isinstance(one, dict) and isinstance(one.get(name), str)
            for one in said
            for name in _PARTS
        ):
            form = '{"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
            raise ValueError(f"{file}:{number} is no conversation; a line holds {form}")
        yield f"{file}:{number}", said
    if not number:
        raise ValueError(f"{file} holds no conversation; it needs lines with `messages`")


def _as_example(messages: Sequence[Message], where: str) -> Example:
    roles = [str(message["role"]) for message in messages]
    if roles[0] == "system":
        raise ValueError(
            f"{where} has a system message; an environment has its own: leave it out of worked examples"
        )
    wrong = any(later not in ROLES.get(role, ()) for role, later in pairwise(roles))
    if wrong or roles[0] != "user" or roles[-1] != "assistant":
        form = (
            "begins with `user`, ends with `assistant`, and an assistant answers everything between"
        )
        raise ValueError(f"{where} has the roles {', '.join(roles)}; a worked example {form}")
    return tuple(messages)
