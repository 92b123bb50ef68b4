"""What a model said, read from an answer of `/chat/completions`, in the forms that servers give it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...tools.http.failures import ShapeError
from ...tools.http.json_values import Node
from .finish import finish_of

THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Members of a message that hold what a model thought, by several servers' names."""
MOST_ENCODINGS = 3  # of arguments, one in the other


@dataclass(frozen=True)
class Call:
    """A structured tool call; `arguments` is the JSON text, well-formed or not.

    `extra` is what else a server wants back with the call, such as Gemini's signature of a thought.
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What a model said. Of several calls the first one counts, as in text."""

    content: str
    call: Call | None
    finish: str  # the server's word for why it ended; "" where it names none
    model: str  # as the server names it; "" where it does not
    prompt_tokens: int
    completion_tokens: int
    thoughts: Mapping[str, Any] = field(
        default_factory=dict
    )  # as they were received, by the server's names
    error: Any = None  # what the server says of a choice that went wrong

    @classmethod
    def read(cls, root: Node) -> Self:
        """Return what an answer of `/chat/completions` holds; raises `ShapeError` where it is none."""
        choices = root["choices"].array()
        if not choices:
            raise ShapeError("choices is empty")
        choice, usage = choices[0], root.object().get("usage")
        finish = _finish(choice.object().get("finish_reason"))
        message = choice["message"]
        if message.value is None and not finish_of(finish).answers:
            message = Node(
                {}, message.path
            )  # the reason says what is wrong, and more than the missing message
        said = message.object()
        counts = usage if isinstance(usage, dict) else {}
        return cls(
            _text(message),
            _first_call(message),
            finish,
            str(root.object().get("model") or ""),
            prompt_tokens=_count(counts.get("prompt_tokens")),
            completion_tokens=_count(counts.get("completion_tokens")),
            thoughts={name: said[name] for name in THOUGHTS if said.get(name) is not None},
            error=choice.object().get("error"),
        )

    @property
    def empty(self) -> bool:
        """Whether nothing was said, called or thought."""
        return not (self.content or self.call or self.thoughts)


def _text(message: Node) -> str:
    """Return what was said: the content, as a text or in parts, or the words of a refusal; thoughts are left out."""
    content = message.object().get("content")
    if isinstance(content, list):
        return "".join(
            part["text"].string() for part in message["content"].array() if "text" in part
        )
    name = "content" if content is not None else "refusal"
    return message[name].string() if message.object().get(name) is not None else ""


def _first_call(message: Node) -> Call | None:
    """Return the first call, also one in the form from before there were `tool_calls`."""
    if message.object().get("tool_calls"):
        return _call(message["tool_calls"].array()[0])
    legacy = message.object().get("function_call")
    if isinstance(legacy, dict) and legacy.get("name"):
        return _call(message["function_call"])
    return None


def _call(call: Node) -> Call:
    function = Node(call.object().get("function", call.value), call.path)
    extra = {name: call.value[name] for name in ("extra_content",) if call.value.get(name)}
    return Call(
        str(call.object().get("id") or ""), function["name"].string(), _arguments(function), extra
    )


def _arguments(function: Node) -> str:
    """Return the JSON text of the arguments: given as an object, as a text, or as a text of a text of an object."""
    arguments = function.object().get("arguments")
    if not isinstance(arguments, str):
        return json.dumps(arguments or {})
    text = Node(arguments, f"{function.path}.arguments").string()
    inner: Any = text
    for _ in range(MOST_ENCODINGS):
        try:
            decoded = json.loads(inner)
        except (ValueError, RecursionError):
            return text
        if isinstance(decoded, dict):
            return Node(inner).string()
        if not isinstance(decoded, str):
            return text
        inner = decoded
    return text


def _finish(reason: Any) -> str:
    """Return a finish reason: a text or, as SGLang's own interface has it, an object that names its type."""
    if isinstance(reason, dict):
        reason = reason.get("type")
    return "" if reason is None else str(reason)


def _count(number: Any) -> int:
    """Return a number of tokens, which some servers write as a text or with a point; 0 where there is none."""
    if isinstance(number, str) and number.isdecimal():
        return int(number[:18])
    whole = isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < 1e18
    return int(number) if whole else 0
