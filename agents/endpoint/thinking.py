"""What a model thought, sent back within a question where the server wants it.

A message of the assistant keeps its thoughts as they were received. Whether a request holds them is decided when it is
sent: never, always, or once a server has refused a request without them and answered the same one with them.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...envs import Message
from .answer import THOUGHTS

BACK = ("extra_content",)  # of calls
_NAMES = {"reasoning": "reasoning", "reasoning_details": "reasoning_details"}
_USUAL = "reasoning_content"


class Returned(IntEnum):
    """Which thoughts go back."""

    NONE = 0
    RECEIVED = 1  # those that were received
    ALL = 2  # and an empty one for each message that came without: some servers want one with each


def outgoing(messages: Sequence[Message], returned: Returned, named: str = "") -> list[Message]:
    """Return messages as they are sent; `named` is the server's name for thoughts, which an empty one gets."""
    return [_outgoing(message, returned, named) for message in messages]


def _outgoing(message: Message, returned: Returned, named: str) -> Message:
    if message["role"] != "assistant":
        return message
    thoughts = {name: message[name] for name in THOUGHTS if name in message}
    sent = {name: value for name, value in message.items() if name not in THOUGHTS}
    if returned is Returned.NONE:
        if "tool_calls" in sent:
            sent["tool_calls"] = [_without(call) for call in sent["tool_calls"]]
        return sent
    if returned is Returned.ALL and not thoughts:
        thoughts = {_NAMES.get(named, _USUAL): [] if named == "reasoning_details" else ""}
    return {**sent, **thoughts}


def _without(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name not in BACK}
