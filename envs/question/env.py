"""Questions with tools: `QuestionEnv = tasks x tools x grader`.

A reply that calls a tool gets the tool's result. A reply that calls none is the final answer and is
graded. Without tools every reply is final, so a single-turn environment is a `QuestionEnv` without
tools.

A tool call is a valid action if it could be parsed and the tool returned a result with status OK. A
final reply is valid if it holds an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from ...tools import AnyTool, Format, Status, ToolCall, get_format
from ...tools.checks import cut_middle
from ...tools.formats.fenced import remove_fence
from ...tools.formats.foreign import find_foreign_call
from ..outcomes import Reply, StopReason
from ..spaces import MAX_BYTES, TextSpace
from ..tasks import Message, Task, Tasks, choose_index
from ..text_env import TextEnv
from .graders import as_grader
from .task_sets import as_task_set
from .toolbox import TOOL_TIMEOUT, Toolbox

# The longest tool result that an agent sees. A character takes at most 4 bytes, so this fits in the
# text space.
RESULT_CHARACTERS = 16_000
# When to call tools, for the prompts of stock models. How a call is written is said by the format
# or the chat template.
CALLS = (
    "Call a tool where it helps: one call at a time, then wait for its result. "
    "When you know the answer, make no call. "
)


def is_lenient(answers: str) -> bool:
    """Return whether an environment's option `answers` asks for lenient grading.

    Raises:
        ValueError: It is neither `"strict"` nor `"lenient"`.
    """
    if answers not in ("strict", "lenient"):
        raise ValueError(f"answers is {answers!r}; it must be strict or lenient")
    return answers == "lenient"


def prompt_of(system: bool | str, short: str, full: str) -> str:
    """Return the system prompt that an environment's option `system` asks for.

    Args: system: A text, which is the prompt itself; true for the `full` prompt, false for the
        `short` one. short: The prompt for a policy that was trained in the environment. full: The
        prompt for a stock model, which has to be told how to answer.

    Raises:
        ValueError: `system` is neither a bool nor a text.
    """
    if not isinstance(system, bool | str):
        raise ValueError(f"system is {system!r}; it must be true, false or a text")
    if isinstance(system, str):
        return system
    return full if system else short


class Graded(Protocol):
    """A grader's verdict on one completion."""

    @property
    def score(self) -> float:
        """The reward; a `Rewards` if it is the weighted sum of several."""

    @property
    def answer(self) -> str | None:
        """The agent's answer as text; None if it gave none."""

    @property
    def how(self) -> str:
        """The name of the rule that decided."""


class Grader(Protocol):
    """Scores a completion against a gold answer."""

    def grade(self, *, completion: str, gold: str) -> Graded:
        """Return the verdict; raise `EnvFailure` if the grader itself cannot run."""


class _PlantedTasks:
    """The same tasks with another gold answer, to see whether an environment shows it anywhere."""

    def __init__(self, tasks: Tasks, gold: str) -> None:
        self.name = tasks.name
        self.split = tasks.split
        self._tasks = tasks
        self._gold = gold

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, i: int, /) -> Task:
        task = self._tasks[i]
        solution = f"print({self._gold!r})" if task.solution else task.solution
        return replace(task, gold=self._gold, aliases=(), solution=solution)


class QuestionEnv(TextEnv):
    """Ask a question, let the agent use tools, grade its answer.

    Args: tasks: The questions: a list of dicts `{"question": …, "answer": …}`, of pairs (question,
        answer) or of
            `Task`s; a file, a folder or a data set that `load_tasks` reads; or a set of tasks.
            `reset(options={"task": i})` picks one, else the environment's generator draws it.
        grader: Scores the final answer: a function `grade(answer, gold)` that returns True, False
            or a number from 0 to 1, or an object with `grade(*, completion, gold)`. The gold never
            leaves it.
        tools: What the agent can call: tools, typed functions with a docstring, or classes whose
            public methods are such functions.
        format: How calls are written (`turngym.tools.FORMATS`).
        system: The system prompt, in front of the format's own instructions.
        max_turns: Turn limit; a question without tools has one turn.
        tool_timeout: Seconds after which a tool that has not answered counts as an infrastructure
            failure. A tool with its own `timeout`, such as `PythonTool`, has ended the agent's
            program by then, which is a result and no failure.

    Raises: TypeError, ValueError: Tasks, grader or tools cannot be used: what is wrong, where, and
        the fix.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "grader", "format", "task"}
    # Whether the text that an agent wrote behind its final answer is graded, too.
    grades_all: ClassVar[bool] = False

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
        self.format.instructions(
            self.toolbox.schemas
        )  # raises for tools that the format cannot call
        self.system = system
        self.task: Task | None = None
        self.results: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; `info` also holds `levels` if tools have isolation levels."""
        observation, info = super().reset(seed=seed, options=options)
        levels = self.toolbox.levels
        if levels:
            # Added after the base class has taken its digest: an episode is the same at every
            # level.
            info = {**info, "levels": levels}
        return observation, info

    def on_reset(self, rng: np.random.Generator, options: Mapping[str, Any]) -> str:
        index = choose_index(rng, options, self.tasks)
        self.toolbox.reset()
        self.results = []
        self.task = self.tasks[index]
        self.task_id = self.task.id
        self.category = self.task.category
        return self.task.prompt

    def without_thoughts(self, action: str) -> str:
        """Return the reply without the model's reasoning; a format knows where its calls begin."""
        if len(self.toolbox):
            return self.format.without_thoughts(action)
        return super().without_thoughts(action)

    def on_step(self, text: str) -> Reply:
        """Run the tool call in the agent's reply, or grade the reply if it holds none.

        A call that cannot be parsed is answered with an error, and the agent goes on. `info` says
        if the reply holds a call in another model's format (`foreign_call`), which no tool is
        called for.
        """
        if not len(self.toolbox):
            return self._grade_answer(text)
        tool_names = tuple(self.toolbox.tools)
        parsed = self.format.parse(text, tool_names)
        if parsed.call is not None:
            return self._call_tool(parsed.call)

        is_malformed = parsed.error is not None
        foreign_format = find_foreign_call(
            text, self.format.name, tool_names, malformed=is_malformed
        )
        foreign_info = {"foreign_call": foreign_format} if foreign_format else {}
        if is_malformed:
            role, content = self.format.observe(f"error: {parsed.error}", None)
            info = {"tool": None, "tool_status": "malformed", **foreign_info}
            return Reply(content, role=role, info=info, valid=False)

        # `parsed.text` ends with the final answer: usually nothing that is written behind it
        # counts.
        reply = self._grade_answer(text if self.grades_all else parsed.text)
        return replace(reply, info={**reply.info, **foreign_info})

    def gold(self) -> list[str]:
        """Return the replies of an expert: a program if there is a Python tool, then the answer.

        If a task has no solution, the program prints the answer.
        """
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        gold = self.task.gold
        takes_plain_answers = getattr(self.grader, "takes_plain_answers", False)
        answer = gold if takes_plain_answers else f"\\boxed{{{gold}}}"
        if "python" not in self.toolbox.tools or self.turn or self.max_turns == 1:
            return [answer]
        is_integer = gold.isascii() and gold.removeprefix("-").isdecimal()
        gold_literal = gold if is_integer else repr(gold)
        code = self.task.solution or f"print({gold_literal})"
        call = self.format.render(ToolCall("python", {"code": code}))
        return [call, answer]

    def plant(self, canary: str) -> bool:
        """Replace each task's gold and its solution's output by `canary`; the episode is over."""
        self.tasks = _PlantedTasks(self.tasks, canary)
        self.live = False
        return True

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers are equal, by the grader's `same` if it has one, else as
        texts.

        Raises:
            EnvFailure: The grader cannot run.
        """
        is_same = getattr(self.grader, "same", None)
        if is_same is None:
            return super().same(first, second)
        return bool(is_same(first, second))

    def messages(self, observation: str) -> list[Message]:
        """Return the chat up to the agent's first turn: system prompt, earlier turns, question."""
        opening = self.task.opening if self.task is not None else getattr(self.tasks, "opening", ())
        task_instructions = [turn["content"] for turn in opening if turn["role"] == "system"]
        tool_instructions = ""
        if len(self.toolbox):
            tool_instructions = self.format.instructions(self.toolbox.schemas)
        system_parts = [*task_instructions, self.system, tool_instructions]
        system = "\n".join(part for part in system_parts if part)

        messages = [{"role": "system", "content": system}] if system else []
        messages += [turn for turn in opening if turn["role"] != "system"]
        messages.append({"role": "user", "content": observation})
        return messages

    def tool_schemas(self) -> list[dict[str, Any]]:
        return self.toolbox.schemas if self.format.native else []

    def close(self) -> None:
        self.toolbox.close()

    def used(self, answer: str) -> bool:
        """Return whether `answer` is one of the words of the episode's tool results."""
        return any(answer in result.split() for result in self.results)

    def measures(self, verdicts: Sequence[Graded]) -> dict[str, Any]:
        """Return further measures of an answer for `info`.

        Args:
            verdicts: The grader's verdicts on the answer, one for each gold of the task.
        """
        return {}

    def _call_tool(self, call: ToolCall) -> Reply:
        """Run a tool call and return its result as the next observation.

        The action is valid if the tool's status is OK.

        Raises:
            ToolFailure: The tool cannot run, or has not answered in time.
        """
        code = call.arguments.get("code")
        if call.name == "python" and isinstance(code, str):
            call = replace(call, arguments={**call.arguments, "code": remove_fence(code)})
        # If the call outlives its timeout, a reset may begin another list: the result belongs to
        # this episode's.
        episode_results = self.results
        result = self.toolbox.call(call)
        text = cut_middle(result.text.rstrip("\n"), RESULT_CHARACTERS)
        is_ok = result.status is Status.OK
        if is_ok:
            episode_results.append(text)
        role, content = self.format.observe(text or "(no output)", call.name)
        info = {"tool": call.name, "tool_status": str(result.status)}
        return Reply(content, role=role, info=info, valid=is_ok)

    def _grade_answer(self, text: str) -> Reply:
        """End the episode with the best verdict on the final reply over the task's golds.

        An answer that only restates the question (`48/2` where it is read off the text) scores 0.

        Raises:
            EnvFailure: The grader cannot run.
        """
        if self.task is None:
            raise RuntimeError("there is no task: call reset() first")
        verdicts = [self.grader.grade(completion=text, gold=gold) for gold in self.task.golds]
        best = max(verdicts, key=lambda verdict: verdict.score)
        answer = best.answer
        score = best.score
        rule = best.how
        if score and answer is not None and self.task.restates(answer):
            score = 0.0
            rule = "restated"
        info = {
            "score": float(score),
            "answer": answer,
            "how": rule,
            "used_tool": answer is not None and self.used(answer),
            **self.measures(verdicts),
        }
        stop = StopReason.NO_ANSWER if answer is None else StopReason.ANSWERED
        return Reply("", reward=score, stop=stop, info=info, valid=answer is not None)
