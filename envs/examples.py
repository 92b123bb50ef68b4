"""Worked examples (`shots`) in front of a question: an expert's play, or conversations of a file.

They are messages of an episode's opening, behind its system prompt, so everyone who reads the
opening gets them: rollouts, evaluations, servers, players, warm-ups. A question is never among its
own examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .rows import json_rows
from .tasks import Message

Example = tuple[Message, ...]
"""A conversation that begins with the user and ends with the assistant."""
MOST = 64  # worked examples in front of a question
# Which roles may speak next, after a message of each role.
ROLES = {"user": ("assistant",), "assistant": ("user", "tool"), "tool": ("assistant",)}


@dataclass(frozen=True)
class Examples:
    """Worked examples, of which `shots` stand in front of each question.

    Args:
        conversations: The examples. An expert plays one more than `shots`, so that there are enough
            for a question that is itself one of them.
        shots: How many stand in front of a question.
    """

    conversations: tuple[Example, ...] = ()
    shots: int = 0

    def put_before_question(self, messages: list[Message]) -> list[Message]:
        """Return an episode's opening with examples between its system prompt and the question.

        An example that begins with one of the messages of the opening is left out: it would tell
        the answer.
        """
        asked = [message["content"] for message in messages if message["role"] != "system"]
        others = [
            conversation
            for conversation in self.conversations
            if conversation[0]["content"] not in asked
        ]
        system_count = len(messages) - len(asked)
        opening = messages[:system_count]
        for conversation in others[: self.shots]:
            opening += conversation
        return opening + messages[system_count:]


def examples_of(file: Path) -> Examples:
    """Return the worked examples of a JSONL file of conversations.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not a conversation that begins with the user and ends with the
            assistant, or there are too many lines.
    """
    examples = tuple(_as_example(messages, place) for place, messages in conversations(file))
    if len(examples) > MOST:
        raise ValueError(
            f"shots is {str(file)!r}, which holds {len(examples)} conversations; at most {MOST} fit"
        )
    return Examples(examples, shots=len(examples))


def conversations(file: Path) -> Iterator[tuple[str, list[Message]]]:
    """Yield the conversations of a JSONL file whose lines are objects with `messages`.

    Yields:
        The place (`file:line`) and the messages of each.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not a conversation, or there is none.
    """
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}; name a JSONL file whose lines hold `messages`"
        )
    number = 0
    for number, row in json_rows(file):
        messages = row.get("messages") if isinstance(row, dict) else None
        if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
            raise ValueError(
                f"{file}:{number} is no conversation; a line holds "
                '{"messages": [{"role": "user", "content": "…"}, '
                '{"role": "assistant", "content": "…"}]}'
            )
        yield f"{file}:{number}", messages
    if not number:
        raise ValueError(f"{file} holds no conversation; it needs lines with `messages`")


def _is_message(value: Any) -> bool:
    """Return whether a value is a chat message with the texts `role` and `content`."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _as_example(messages: Sequence[Message], place: str) -> Example:
    """Return a conversation as a worked example.

    Raises:
        ValueError: It has a system message, or its roles are in an order that no episode has; the
            message begins with `place`.
    """
    roles = [str(message["role"]) for message in messages]
    if roles[0] == "system":
        raise ValueError(
            f"{place} has a system message; an environment has its own: "
            "leave it out of worked examples"
        )
    in_order = all(later in ROLES.get(role, ()) for role, later in pairwise(roles))
    if not in_order or roles[0] != "user" or roles[-1] != "assistant":
        raise ValueError(
            f"{place} has the roles {', '.join(roles)}; a worked example begins with `user`, "
            "ends with `assistant`, and an assistant answers everything between"
        )
    return tuple(messages)
