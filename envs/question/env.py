"""Questions with tools: `QuestionEnv = tasks x tools x grader`.

A reply that calls a tool gets the tool's result; a reply that calls none is the final answer and is graded. Without
tools every reply is final, so a single-turn environment is this one with nothing in the agent's hands.
A call is a valid action where it could be read and the tool ran to its end, a final reply where it holds an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from ...tools import AnyTool, Format, Status, ToolCall, get_format
from ...tools.checks import cut_middle
from ...tools.formats.fenced import unfenced
from ...tools.formats.foreign import foreign_call
from ..outcomes import Reply, StopReason
from ..spaces import MAX_BYTES, TextSpace
from ..tasks import Message, Task, Tasks, choose_index
from ..text_env import TextEnv
from .graders import as_grader
from .task_sets import as_task_set
from .toolbox import TOOL_TIMEOUT, Toolbox

RESULT_CHARACTERS = 16_000  # of a tool's result that an agent sees: at most 4 bytes each, they fit in the text space
# How tools are used, for the prompts of stock models; the format or the chat template says how a call is written.
CALLS = "Call a tool where it helps: one call at a time, then wait for its result. When you know the answer, make no call. "


def is_lenient(answers: str) -> bool:
    """Return whether `answers`, the option of an environment, is `lenient`.

    Raises ValueError where it is neither `strict` nor `lenient`.
    """
    if answers not in ("strict", "lenient"):
        raise ValueError(f"answers is {answers!r}; it must be strict or lenient")
    return answers == "lenient"


def prompt_of(system: bool | str, short: str, full: str) -> str:
    """Return a system prompt: the `full` text where `system` is true, `short` where it is false, else `system` itself.

    Raises ValueError where it is neither true, nor false, nor a text.
    """
    if not isinstance(system, bool | str):
        raise ValueError(f"system is {system!r}; it must be true, false or a text")
    return system if isinstance(system, str) else full if system else short


class Graded(Protocol):
    """A grader's verdict on one completion."""

    @property
    def score(self) -> float:
        """The reward; a `Rewards` where it is made of several."""

    @property
    def answer(self) -> str | None:
        """What the agent answered; None when it gave no answer."""

    @property
    def how(self) -> str:
        """Which rule decided."""


class Grader(Protocol):
    """Scores a completion against a gold answer."""

    def grade(self, *, completion: str, gold: str) -> Graded:
        """Return the verdict; raise `EnvFailure` when the grader itself cannot run."""


class _Planted:
    def __init__(self, tasks: Tasks, gold: str) -> None:
        self.name, self.split, self._tasks, self._gold = tasks.name, tasks.split, tasks, gold

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, i: int, /) -> Task:
        task = self._tasks[i]
        return replace(
            task, gold=self._gold, aliases=(), solution=task.solution and f"print({self._gold!r})"
        )


class QuestionEnv(TextEnv):
    """Ask a question, let the agent use tools, grade its answer.

    Args:
        tasks: The questions: a list of dicts `{"question": …, "answer": …}`, of pairs (question, answer) or of
            `Task`s; a file, a folder or a data set that `load_tasks` reads; or a set of tasks.
            `reset(options={"task": i})` picks one, else the environment's generator draws it.
        grader: Scores the final answer: a function `grade(answer, gold)` that returns True, False or a number from 0 to
            1, or an object with `grade(*, completion, gold)`. The gold never leaves it.
        tools: What the agent can call: tools, typed functions with a docstring, classes whose public methods are.
        format: How calls are written (`turngym.tools.FORMATS`).
        system: The system prompt, in front of the format's own instructions.
        max_turns: Turn limit; a question without tools has one turn.
        tool_timeout: Seconds after which a tool that has not answered counts as unable to run. A tool that has a
            `timeout` of its own, as `PythonTool`, ends what an agent does by then at the latest: a result, no failure.

    Raises TypeError or ValueError if tasks, grader or tools cannot be used: what is wrong, where, and the fix.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "grader", "format", "task"}
    grades_all: ClassVar[bool] = (
        False  # whether what an agent wrote behind its final answer is graded, too
    )

    def __init__(
        self,
        tasks: Tasks | Iterable[Any] | str | Path,
        grader: Grader | Callable[[str, str], Any],
        tools: Sequence[AnyTool] = (),
        format: str = "hermes",
        system: str = "",
        max_turns: int = 4,
        tool_timeout: float = TOOL_TIMEOUT,
    ) -> None:
        if not isinstance(system, str):
            raise TypeError(f'system is {system!r:.60}; it must be a text: system="…"')
        super().__init__(max_turns if tools else 1)
        self.tasks: Tasks = as_task_set(tasks)
        self.grader: Grader = as_grader(grader)
        # A problem of a file may be of any length, and it is the first observation.
        self.observation_space = TextSpace(max(MAX_BYTES, getattr(self.tasks, "longest", 0)))
        self.toolbox = Toolbox(tools, tool_timeout)
        self.format: Format = get_format(format)
        self.format.instructions(self.toolbox.schemas)  # refuses tools that it cannot call
        self.system = system
        self.task: Task | None = None
        self.results: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; `info` also holds `levels` where tools have isolation levels."""
        observation, info = super().reset(seed=seed, options=options)
        # Behind the base class, whose digest it would change: an episode is the same at every level.
        return observation, info | ({"levels": levels} if (levels := self.toolbox.levels) else {})

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        index = choose_index(rng, options, self.tasks)
        self.toolbox.reset()
        self.results = []
        self.task = self.tasks[index]
        self.task_id, self.category = self.task.id, self.task.category
        return self.task.prompt

    def without_thoughts(self, action: str) -> str:
        return (
            self.format.without_thoughts(action)
            if len(self.toolbox)
            else super().without_thoughts(action)
        )

    def on_step(self, text: str) -> Reply:
        if len(self.toolbox):
            names = tuple(self.toolbox.tools)
            parsed = self.format.parse(text, names)
            if parsed.call is not None:
                return self._use(parsed.call)
            foreign = foreign_call(
                text, self.format.name, names, malformed=parsed.error is not None
            )
            told = {"foreign_call": foreign} if foreign else {}
            if parsed.error is not None:
                role, content = self.format.observe(f"error: {parsed.error}", None)
                info = {"tool": None, "tool_status": "malformed", **told}
                return Reply(content, role=role, info=info, valid=False)
            reply = self._grade(
                text if self.grades_all else parsed.text
            )  # mostly nothing behind an answer counts
            return replace(reply, info={**reply.info, **told})
        return self._grade(text)

    def gold(self) -> list[str]:
        """Compute with the Python tool where there is one, then answer; without a program it prints the answer."""
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        gold = self.task.gold
        is_plain = getattr(self.grader, "takes_plain_answers", False)
        answer = gold if is_plain else f"\\boxed{{{gold}}}"
        if "python" not in self.toolbox.tools or self.turn or self.max_turns == 1:
            return [answer]
        number = gold.removeprefix("-").isdecimal() and gold.isascii()
        code = self.task.solution or f"print({gold if number else repr(gold)})"
        return [self.format.render(ToolCall("python", {"code": code})), answer]

    def plant(self, canary: str) -> bool:
        """Put `canary` in place of every task's gold and of what its solution prints; an episode under way is over."""
        self.tasks, self.live = _Planted(self.tasks, canary), False
        return True

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers are the same: the grader says it, if it has a `same`, else their texts do.

        Raises `EnvFailure` where the grader cannot run.
        """
        grader_same = getattr(self.grader, "same", None)
        return (
            super().same(first, second) if grader_same is None else bool(grader_same(first, second))
        )

    def messages(self, observation: str) -> list[Message]:
        instructions = self.format.instructions(self.toolbox.schemas) if len(self.toolbox) else ""
        opening = self.task.opening if self.task is not None else getattr(self.tasks, "opening", ())
        own = [message["content"] for message in opening if message["role"] == "system"]
        system = "\n".join(part for part in (*own, self.system, instructions) if part)
        first = [{"role": "system", "content": system}] if system else []
        earlier = [message for message in opening if message["role"] != "system"]
        return [*first, *earlier, {"role": "user", "content": observation}]

    def tool_schemas(self) -> list[dict[str, Any]]:
        return self.toolbox.schemas if self.format.native else []

    def close(self) -> None:
        self.toolbox.close()

    def used(self, answer: str) -> bool:
        """Return whether `answer` is a word of a tool's result."""
        return any(answer in result.split() for result in self.results)

    def measures(self, verdicts: Sequence[Graded]) -> dict[str, Any]:
        """Return what `info` holds of an answer besides its score; `verdicts` are those on each gold."""
        return {}

    def _use(self, call: ToolCall) -> Reply:
        code = call.arguments.get("code")
        if call.name == "python" and isinstance(code, str):
            call = replace(call, arguments={**call.arguments, "code": unfenced(code)})
        results, result = (
            self.results,
            self.toolbox.call(call),
        )  # a reset meanwhile begins another list
        text = cut_middle(result.text.rstrip("\n"), RESULT_CHARACTERS)
        if result.status is Status.OK:
            results.append(text)
        role, content = self.format.observe(text or "(no output)", call.name)
        info = {"tool": call.name, "tool_status": str(result.status)}
        return Reply(content, role=role, info=info, valid=result.status is Status.OK)

    def _grade(self, text: str) -> Reply:
        if self.task is None:
            raise RuntimeError("there is no task: call reset() first")
        verdicts = [self.grader.grade(completion=text, gold=gold) for gold in self.task.golds]
        verdict = max(verdicts, key=lambda verdict: verdict.score)
        used = verdict.answer is not None and self.used(verdict.answer)
        score, how = verdict.score, verdict.how
        if score and verdict.answer is not None and self.task.restates(verdict.answer):
            score, how = 0.0, "restated"
        info = {"score": float(score), "answer": verdict.answer, "how": how, "used_tool": used}
        info |= self.measures(verdicts)
        stop = StopReason.NO_ANSWER if verdict.answer is None else StopReason.ANSWERED
        return Reply("", reward=score, stop=stop, info=info, valid=verdict.answer is not None)
