"""What a model answered, read from JSON, and what answers took."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...tools.http.core import Node, ShapeError


@dataclass(frozen=True)
class Call:
    """A structured tool call; `arguments` is the JSON text, well-formed or not."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """What a model said. Of several calls the first one counts, as in text."""

    content: str
    call: Call | None
    finish: str  # stop, length, tool_calls or content_filter
    model: str  # as the server names it
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def read(cls, root: Node) -> Answer:
        """Return what an answer of `/chat/completions` holds; raises `ShapeError` where it is none."""
        choices = root["choices"].array()
        if not choices:
            raise ShapeError("choices is empty")
        message, usage = choices[0]["message"], root.object().get("usage")
        calls = message["tool_calls"].array() if message.object().get("tool_calls") else []
        return cls(
            _text(message),
            _call(calls[0]) if calls else None,
            str(choices[0].object().get("finish_reason") or ""),
            str(root.object().get("model") or ""),
            *(_count(usage, name) for name in ("prompt_tokens", "completion_tokens")),
        )


def _text(message: Node) -> str:
    """Return what was said: the content, as a text or in parts, or the words of a refusal; thoughts are left out."""
    content = message.object().get("content")
    if isinstance(content, list):
        return "".join(part["text"].string() for part in message["content"].array() if "text" in part)
    name = "content" if content is not None else "refusal"
    return message[name].string() if message.object().get(name) is not None else ""


def _call(call: Node) -> Call:
    function = call["function"]
    arguments = function.object().get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return Call(str(call.object().get("id") or ""), function["name"].string(), Node(text).string())


def _count(usage: Any, name: str) -> int:
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if type(count) is int else 0


@dataclass
class Usage:
    """What the answers of an evaluation took, as the server counts; `model` is its name for the model."""

    model: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
