"""Worked examples (`shots`) in front of a question: an expert's play, or conversations of a file.

They are messages of an episode's opening, behind its system prompt, so everyone who reads the
opening gets them: rollouts, evaluations, servers, players, warm-ups. A question is never among its
own examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from .rows import json_rows
from .tasks import Message

Example = tuple[Message, ...]
"""A conversation that begins with the user and ends with the assistant."""
MAX_SHOTS = 64  # worked examples in front of a question
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

        Args:
            messages: The opening: system messages, if any, and then the question.

        Returns:
            A new list. An example of the same question is left out, as it would tell the answer.
        """
        question_texts = [message["content"] for message in messages if message["role"] != "system"]
        other_conversations = [
            conversation
            for conversation in self.conversations
            if conversation[0]["content"] not in question_texts
        ]
        system_count = len(messages) - len(question_texts)
        opening = messages[:system_count]
        for conversation in other_conversations[: self.shots]:
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
    if len(examples) > MAX_SHOTS:
        raise ValueError(
            f"shots is {str(file)!r}, which holds {len(examples)} conversations; "
            f"at most {MAX_SHOTS} fit"
        )
    return Examples(examples, shots=len(examples))


def conversations(file: Path) -> Iterator[tuple[str, list[Message]]]:
    """Yield the conversations of a JSONL file whose lines are objects with `messages`.

    Yields:
        For each conversation its place (`file:line`, for errors) and its messages.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: A line is not a conversation, or there is none.
    """
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {file}; name a JSONL file whose lines hold `messages`"
        )
    line_number = 0
    for line_number, row in json_rows(file):
        messages = row.get("messages") if isinstance(row, dict) else None
        if not _is_conversation(messages):
            raise ValueError(
                f"{file}:{line_number} is no conversation; a line holds "
                '{"messages": [{"role": "user", "content": "…"}, '
                '{"role": "assistant", "content": "…"}]}'
            )
        yield f"{file}:{line_number}", messages
    if not line_number:
        raise ValueError(f"{file} holds no conversation; it needs lines with `messages`")


def _is_conversation(value: Any) -> TypeGuard[list[Message]]:
    """Return whether a value is a list of at least one chat message."""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    """Return whether a value is a chat message with the texts `role` and `content`."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _as_example(messages: Sequence[Message], place: str) -> Example:
    """Return a conversation as a worked example, after a check of its roles.

    Args:
        messages: The messages, at least one.
        place: Where the conversation stands (`file:line`), with which an error begins.

    Raises:
        ValueError: It begins with a system message, or its roles are in an order that no episode
            has.
    """
    roles = [str(message["role"]) for message in messages]
    if roles[0] == "system":
        raise ValueError(
            f"{place} has a system message; an environment has its own: "
            "leave it out of worked examples"
        )
    in_order = all(next_role in ROLES.get(role, ()) for role, next_role in pairwise(roles))
    if not in_order or roles[0] != "user" or roles[-1] != "assistant":
        raise ValueError(
            f"{place} has the roles {', '.join(roles)}; a worked example begins with `user`, "
            "ends with `assistant`, and an assistant answers everything between"
        )
    return tuple(messages)
