"""A server with OpenAI's `/v1/chat/completions` on the loopback, and a scripted model in it; rightly or wrongly.

What the model says depends on the conversation alone, so that an evaluation of it has one result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from turngym.envs.question.env import QuestionEnv
from turngym.tests.support.faults import (
    RESET,
    Answer,
    FaultServer,
    Kept,
    Request,
    drip,
    forever,
    head,
    whole,
)
from turngym.tools import get_format
from turngym.tools.formats import ToolCall

Json = dict[str, Any]
KEY = "sk-test-0123456789abcdefghij"


def dice(text: str) -> int:
    """A number from 0 to 99 that depends on the text."""
    return sha256(text.encode()).digest()[0] * 100 // 256


@dataclass
class Scripted:
    """Calls Python with the code of a task, then answers what that printed; every fourth task wrongly.

    `known` are code and answer by prompt.
    """

    known: Mapping[str, tuple[str, str]]
    reasoning: bool = False

    @classmethod
    def of(cls, env: QuestionEnv, tasks: range = range(64), **rest: Any) -> Scripted:
        """A model that knows the tasks of an environment."""
        found = [env.tasks[i] for i in tasks if i < len(env.tasks)]
        return cls({task.prompt: (task.solution or "", task.gold) for task in found}, **rest)

    def __call__(self, asked: Json) -> Json:
        """Return the message that follows."""
        prompt = next(
            message["content"] for message in asked["messages"] if message["role"] == "user"
        )
        code, gold = self.known[prompt]
        thoughts = {"reasoning_content": f"Hm, {prompt}"} if self.reasoning else {}
        if asked["messages"][-1]["role"] == "tool":
            return thoughts | {
                "content": f"So it is \\boxed{{{asked['messages'][-1]['content']}}}."
            }
        if code and asked.get("tools") and dice(prompt) >= 25:
            return thoughts | {
                "content": None,
                "tool_calls": [call("python", json.dumps({"code": code}))],
            }
        if code and asked["messages"][0]["role"] == "system" and len(asked["messages"]) == 2:
            text = get_format("tags").render(ToolCall("python", {"code": code}))
            return thoughts | {"content": f"Let me see.\n{text}"}
        return thoughts | {"content": f"\\boxed{{{gold if dice(prompt) >= 25 else 'nothing'}}}"}


def call(name: str, arguments: Any, number: int = 0) -> Json:
    """Return a structured call."""
    return {
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def completion(message: Json, model: str = "scripted-1", finish: str = "") -> Json:
    """Return a message as `/chat/completions` answers it."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


@dataclass
class ChatServer:
    """Answers with `model`, or in the way of `FAULTS` that `plan` names for a request; "" is the right way."""

    model: Callable[[Json], Json]
    plan: Callable[[int, Json], str] = lambda number, asked: ""
    asked: list[Json] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    @contextmanager
    def run(self) -> Iterator[str]:
        """Be reachable at the URL."""
        with FaultServer(self.answer) as server:
            yield server.url

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        self.heads.append(request.head)
        if request.target != "/v1/chat/completions":
            return kept(b'{"detail": "Not Found"}', "404 Not Found")
        asked = json.loads(request.body)
        self.asked.append(asked)
        if way := self.plan(len(self.asked) - 1, asked):
            return FAULTS[way](asked, self.model)
        found = self.model(asked)
        return right(found if "choices" in found else completion(found))


def kept(
    body: bytes, status: str = "200 OK", *fields: str, kind: str = "application/json"
) -> Answer:
    """Return an answer behind which the connection stays open."""
    return Kept(whole(body, status, *fields, kind=kind))


def right(data: Json) -> Answer:
    """Return a good answer."""
    return kept(json.dumps(data).encode())


def _error(status: str, message: str, *fields: str) -> Callable[..., Answer]:
    return lambda asked, model: kept(
        json.dumps({"error": {"message": message}}).encode(), status, *fields
    )


def _half(asked: Json, model: Callable[[Json], Json]) -> Answer:
    body = json.dumps(completion(model(asked))).encode()
    return [head("200 OK", f"Content-Length: {len(body)}") + body[: len(body) // 2]]


PAGE = b"\n<!DOCTYPE html><html><body>Welcome</body></html>"
PASSING: dict[str, Callable[..., Answer]] = {  # another try may help
    "429": _error("429 Too Many Requests", "slow down"),
    "429 later": _error("429 Too Many Requests", "slow down", "Retry-After: 0"),
    "503": _error("503 Service Unavailable", "full"),
    "500": _error("500 Internal Server Error", "oops"),
    "reset": lambda asked, model: [RESET],
    "cut": _half,
    "cut json": lambda asked, model: kept(json.dumps(completion(model(asked))).encode()[:-9]),
    "no choices": lambda asked, model: kept(b'{"choices": []}'),
    "a list": lambda asked, model: kept(b"[1]"),
    "no message": lambda asked, model: kept(b'{"choices": [{"text": "hi"}]}'),
    "number": lambda asked, model: kept(b'{"choices": [{"message": {"content": 7}}]}'),
}
FAULTS: dict[str, Callable[..., Answer]] = PASSING | {
    "silent": lambda asked, model: [60.0],
    "drip": lambda asked, model: drip(head("200 OK", "Content-Length: 10000"), b" "),
    "endless": lambda asked, model: forever(head("200 OK"), b" " * 2**20),
    "page": lambda asked, model: kept(PAGE, kind="text/html"),
    "401": _error("401 Unauthorized", f"Incorrect API key provided: {KEY}."),
    "400": _error("400 Bad Request", "temperature is not supported"),
    "no tools": _error("400 Bad Request", '"auto" tool choice requires --enable-auto-tool-choice'),
    "too long": _error(
        "400 Bad Request", "This model's maximum context length is 4096 tokens, you asked for 5000"
    ),
    "quota": _error("429 Too Many Requests", "You exceeded your quota, insufficient_quota"),
    "wait": _error("429 Too Many Requests", "come back", "Retry-After: 100000"),
    "other model": lambda asked, model: right(completion(model(asked), "scripted-2")),
    "withheld": lambda asked, model: right(completion({"content": ""}, finish="content_filter")),
    "length": lambda asked, model: right(
        completion({"content": "Let me think about"}, finish="length")
    ),
    "no usage": lambda asked, model: right({**completion(model(asked)), "usage": None}),
    "leak": lambda asked, model: right(completion({"content": f"{KEY} \\boxed{{1}}"})),
}
