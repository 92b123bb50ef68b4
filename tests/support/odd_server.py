"""A server of a model that multiplies, and single answers that are odd; evaluations of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turngym.agents.cli.settings import EndpointOptions, SamplingOptions
from turngym.agents.evaluation import run as evaluate
from turngym.agents.evaluation.scores import Episode, Report
from turngym.tests.support.chat_server import ChatServer, Json, call
from turngym.tests.support.faults import Answer, Request

PYTHON = "turngym/MathPython-v0"


def multiply(asked: Json) -> Json:
    """Call Python with the question's product, and answer what it printed."""
    question = next(
        message["content"] for message in asked["messages"] if message["role"] == "user"
    )
    if asked["messages"][-1]["role"] == "tool":
        return {"content": f"It is \\boxed{{{asked['messages'][-1]['content'].strip()}}}."}
    code = json.dumps({"code": f"print({question.split()[2]} * 7)"})
    return {"content": None, "tool_calls": [call("python", code)]}


class Odd(ChatServer):
    """Answers rightly, but where `odd` returns an answer for a request's number."""

    def __init__(
        self, odd: Callable[[int, Json], Answer | None] = lambda number, asked: None
    ) -> None:
        super().__init__(multiply)
        self.odd = odd

    def answer(self, request: Request) -> Answer:
        """Answer one request."""
        asked = json.loads(request.body)
        found = self.odd(len(self.asked), asked)
        if found is None:
            return super().answer(request)
        self.asked.append(asked)
        return found


def evaluated(
    server: ChatServer,
    tasks: Path,
    out: Path | None = None,
    resume: bool = False,
    episodes: int = 4,
    **rest: Any,
) -> tuple[Report, list[Episode]]:
    """Return the report and the episodes of an evaluation, one request at a time."""
    found: list[Episode] = []
    with server.run() as url:
        options: dict[str, Any] = {"concurrency": 1, "retries": 2, "timeout": 20.0, **rest}
        endpoint = EndpointOptions(model="m", base_url=url, **options)
        if out is not None and resume:  # the server has another port
            settings = json.loads((out / "settings.json").read_text())
            (out / "settings.json").write_text(json.dumps(settings | {"base_url": url}))
        prepared = evaluate.prepare(
            PYTHON,
            {"split": "test", "tasks": str(tasks)},
            endpoint=endpoint,
            episodes=episodes,
            sampling=SamplingOptions(max_tokens=64),
            out=out,
            resume=resume,
        )
        report = evaluate.run(prepared, found.append)
    return report, found
