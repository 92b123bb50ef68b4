"""Questions with tools: `QuestionEnv = tasks x tools x grader`.

A reply that calls a tool gets the tool's result; a reply that calls none is the final answer and is graded. Without
tools every reply is final, so a single-turn environment is this one with nothing in the agent's hands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from ..tools import Format, Status, Tool, ToolCall, get_format
from .core import Message, Reply, StopReason, TextEnv
from .tasks import Task, Tasks


class Verdict(Protocol):
    """What a grader says of one completion."""

    @property
    def score(self) -> float:
        """The reward."""

    @property
    def answer(self) -> str | None:
        """What the agent answered; None when it gave no answer."""

    @property
    def how(self) -> str:
        """Which rule decided."""


class Grader(Protocol):
    """Scores a completion against a gold answer."""

    def grade(self, *, completion: str, gold: str) -> Verdict:
        """Return the verdict; raise `EnvFailure` when the grader itself cannot run."""


class Toolbox:
    """The tools of one episode, by name; forks and ends as one."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) != len(tools):
            raise ValueError(f"two tools share a name: {', '.join(tool.name for tool in tools)}")

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self.tools)

    def fork(self) -> Toolbox:
        """Return a copy whose tools are live, independent and in the same state."""
        return Toolbox([tool.fork() for tool in self.tools.values()])

    def reset(self) -> None:
        """Give every tool a fresh state."""
        for tool in self.tools.values():
            tool.reset()

    def close(self) -> None:
        """End every tool's processes."""
        for tool in self.tools.values():
            tool.close()


class QuestionEnv(TextEnv):
    """Ask a question, let the agent use tools, grade its answer.

    Args:
        tasks: The questions; `reset(options={"task": i})` picks one, else the environment's generator draws it.
        grader: Scores the final answer; the gold never leaves it.
        tools: What the agent can call.
        format: How calls are written (`turngym.tools.FORMATS`).
        system: The system prompt, in front of the format's own instructions.
        max_turns: Turn limit; a question without tools has one turn.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "grader", "format", "task"}

    def __init__(
        self,
        tasks: Tasks,
        grader: Grader,
        tools: Sequence[Tool] = (),
        format: str = "hermes",
        system: str = "",
        max_turns: int = 4,
    ) -> None:
        super().__init__(max_turns if tools else 1)
        self.tasks = tasks
        self.grader = grader
        self.toolbox = Toolbox(tools)
        self.format: Format = get_format(format)
        self.system = system
        self.task: Task | None = None
        self.results: list[str] = []

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        """Pick a task and show its prompt."""
        drawn = int(rng.integers(len(self.tasks)))
        if unknown := set(options) - {"task"}:
            raise ValueError(f"reset has no option {', '.join(map(repr, unknown))}; its one option is 'task'")
        index = options.get("task", drawn)
        # A NumPy integer would not survive the JSON of a snapshot.
        if type(index) is not int or not 0 <= index < len(self.tasks):
            last = len(self.tasks) - 1
            raise ValueError(
                f"options['task'] is {index!r}; choose an int from 0 to {last}, a task of {self.tasks.name}"
            )
        self.toolbox.reset()
        self.results = []
        self.task = self.tasks[index]
        self.task_id = self.task.id
        return self.task.prompt

    def on_step(self, text: str) -> Reply:
        """Run the first tool call of `text`, or grade it."""
        if len(self.toolbox):
            parsed = self.format.parse(text, tuple(self.toolbox.tools))
            if parsed.call is not None:
                return self._use(parsed.call)
            if parsed.error is not None:
                role, content = self.format.observe(f"error: {parsed.error}")
                return Reply(content, role=role, info={"tool": None, "tool_status": "malformed"})
        return self._grade(text)

    def gold(self) -> list[str]:
        """Compute with the Python tool where there is one, then answer."""
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        answer = f"\\boxed{{{self.task.gold}}}"
        if self.task.solution is None or "python" not in self.toolbox.tools or self.turn or self.max_turns == 1:
            return [answer]
        return [self.format.render(ToolCall("python", {"code": self.task.solution})), answer]

    def messages(self, observation: str) -> list[Message]:
        """Open with the system prompt (with the format's instructions) and the question."""
        instructions = self.format.instructions(self.tool_schemas()) if len(self.toolbox) else ""
        system = "\n".join(part for part in (self.system, instructions) if part)
        opening = [{"role": "system", "content": system}] if system else []
        return [*opening, {"role": "user", "content": observation}]

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools' JSON schemas."""
        return [tool.schema for tool in self.toolbox.tools.values()]

    def close(self) -> None:
        """End the tools' processes."""
        self.toolbox.close()

    def _use(self, call: ToolCall) -> Reply:
        result = self.toolbox.tools[call.name].call(call.arguments)
        text = result.text.rstrip("\n")
        if result.status is Status.OK:
            self.results.append(text)
        role, content = self.format.observe(text or "(no output)")
        return Reply(content, role=role, info={"tool": call.name, "tool_status": str(result.status)})

    def _grade(self, text: str) -> Reply:
        if self.task is None:
            raise RuntimeError("there is no task: call reset() first")
        verdict = self.grader.grade(completion=text, gold=self.task.gold)
        used = verdict.answer is not None and any(verdict.answer in result.split() for result in self.results)
        info = {"score": verdict.score, "answer": verdict.answer, "how": verdict.how, "used_tool": used}
        stop = StopReason.NO_ANSWER if verdict.answer is None else StopReason.ANSWERED
        return Reply("", reward=verdict.score, stop=stop, info=info)
