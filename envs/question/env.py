"""Questions with tools: `QuestionEnv = tasks x tools x grader`.

A reply that calls a tool gets the tool's result. A reply that calls none is the final answer and is
graded. Without tools every reply is final, so a single-turn environment is a `QuestionEnv` without
tools.

A tool call is a valid action if it could be parsed and the tool returned a result with status OK. A
final reply is a valid action if it contains an answer.
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
# When to call tools, for the prompts of stock models. The format or the chat template explains how
# a call is written.
CALLS = (
    "Call a tool where it helps: one call at a time, then wait for its result. "
    "When you know the answer, make no call. "
)


def is_lenient(answers: str) -> bool:
    """Return whether an environment's option `answers` asks for lenient grading.

    Raises:
        ValueError: `answers` is neither `"strict"` nor `"lenient"`.
    """
    if answers not in ("strict", "lenient"):
        raise ValueError(f"answers is {answers!r}; it must be strict or lenient")
    return answers == "lenient"


def prompt_of(system: bool | str, short: str, full: str) -> str:
    """Return the system prompt that an environment's option `system` asks for.

    Args:
        system: The prompt itself; or true for the `full` prompt, false for the `short` one.
        short: The prompt for a policy that was trained in the environment.
        full: The prompt for a stock model, which has to be told how to answer.

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
    """The same tasks with another gold answer, to test whether an environment leaks it."""

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

    Args:
        tasks: The questions: a list of dicts `{"question": …, "answer": …}`, of pairs (question,
            answer) or of `Task`s; a file, a folder or a data set that `load_tasks` reads; or a set
            of tasks. `reset(options={"task": i})` chooses one, else the environment's random
            generator draws it.
        grader: Scores the final answer: a function `grade(answer, gold)` that returns True, False
            or a number from 0 to 1, or an object with `grade(*, completion, gold)`. It must not
            reveal the gold.
        tools: What the agent can call: tools, typed functions with a docstring, or classes whose
            public methods are such functions.
        format: How calls are written (`turngym.tools.FORMATS`).
        system: The system prompt, in front of the format's own instructions.
        max_turns: Turn limit; a question without tools has one turn.
        tool_timeout: Seconds after which a tool that has not answered counts as an infrastructure
            failure. A tool with its own `timeout`, such as `PythonTool`, stops the agent's program
            before that, which is a result and no failure.

    Raises:
        TypeError, ValueError: The tasks, the grader or the tools cannot be used. The message says
            what is wrong, where, and how to fix it.
    """

    shared: ClassVar[frozenset[str]] = TextEnv.shared | {"tasks", "grader", "format", "task"}
    # Whether the text behind a marked final answer is graded, too.
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
        # A problem is the first observation, and one from a file may be of any length.
        self.observation_space = TextSpace(max(MAX_BYTES, getattr(self.tasks, "longest", 0)))
        self.toolbox = Toolbox(tools, tool_timeout)
        self.format: Format = get_format(format)
        # Raises ValueError if the format cannot call one of the tools.
        self.format.instructions(self.toolbox.schemas)
        self.system = system
        self.task: Task | None = None
        self.results: list[str] = []  # of the episode's tool calls with status OK

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode; `info` has `levels`, the isolation levels of tools that have one."""
        observation, info = super().reset(seed=seed, options=options)
        levels = self.toolbox.levels
        if levels:
            # Added behind the base class, so that the episode's digest is the same at every level.
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
        """Return the reply without the model's reasoning."""
        if len(self.toolbox):
            # Marks of thoughts inside a call are arguments, and only the format can tell.
            return self.format.without_thoughts(action)
        return super().without_thoughts(action)

    def on_step(self, text: str) -> Reply:
        """Run the tool call in the agent's reply, or grade the reply if it contains no call.

        A malformed call is answered with an error, and the episode goes on. A call in another
        model's format is not run; `info` names that format as `foreign_call`.

        Args:
            text: The reply without its thoughts.
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
            role, content = self.format.observe(f"error: {parsed.error}", tool=None)
            info = {"tool": None, "tool_status": "malformed", **foreign_info}
            return Reply(content, role=role, info=info, valid=False)

        final_reply = text if self.grades_all else parsed.text  # which ends with the marked answer
        reply = self._grade_answer(final_reply)
        return replace(reply, info={**reply.info, **foreign_info})

    def gold(self) -> list[str]:
        """Return the replies of an expert for the rest of the episode.

        If there is a Python tool and no turn was taken, the first reply runs the task's solution,
        or a program that prints the answer. The last reply is the answer.
        """
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        gold = self.task.gold
        takes_plain_answers = getattr(self.grader, "takes_plain_answers", False)
        answer = gold if takes_plain_answers else f"\\boxed{{{gold}}}"
        has_turn_for_program = self.turn == 0 and self.max_turns != 1
        if "python" not in self.toolbox.tools or not has_turn_for_program:
            return [answer]
        is_integer = gold.isascii() and gold.removeprefix("-").isdecimal()
        gold_literal = gold if is_integer else repr(gold)
        code = self.task.solution or f"print({gold_literal})"
        call = self.format.render(ToolCall("python", {"code": code}))
        return [call, answer]

    def plant(self, canary: str) -> bool:
        """Replace the gold of each task, and what its solution prints, by `canary`.

        This ends the running episode. Returns True, as the environment has golds to replace.
        """
        self.tasks = _PlantedTasks(self.tasks, canary)
        self.live = False
        return True

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers are equal.

        The grader's method `same` decides if it has one, else the texts are compared.

        Raises:
            EnvFailure: The grader cannot run.
        """
        grader_same = getattr(self.grader, "same", None)
        if grader_same is None:
            return super().same(first, second)
        return bool(grader_same(first, second))

    def messages(self, observation: str) -> list[Message]:
        """Return the chat up to the agent's first turn.

        It has one system message, from the task's own instructions, the option `system` and the
        format's instructions; then the turns with which the task opens; then the question.

        Args:
            observation: The question.
        """
        # In front of the first reset, a set of tasks may have an opening for all of its tasks.
        opening = self.task.opening if self.task is not None else getattr(self.tasks, "opening", ())
        system_parts = [turn["content"] for turn in opening if turn["role"] == "system"]
        system_parts.append(self.system)
        if len(self.toolbox):
            system_parts.append(self.format.instructions(self.toolbox.schemas))
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
        """Return further measures of an answer, which `info` gets; a subclass overrides this.

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
        # `reset` replaces the list, maybe while this call is still running. So the list of this
        # episode is taken now.
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
        """Grade a final reply, which ends the episode.

        If the task has several golds, the best verdict counts. An answer that only restates the
        question, such as `48/2` if that stands in the question, scores 0.

        Args:
            text: The final reply without its thoughts.

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
        has_answer = answer is not None
        stop = StopReason.ANSWERED if has_answer else StopReason.NO_ANSWER
        return Reply("", reward=score, stop=stop, info=info, valid=has_answer)
