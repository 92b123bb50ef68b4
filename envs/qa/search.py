"""`SearchEnv`: a question of fact, and a search tool to answer it with.

Retrieved text reaches the agent as messages of the user or of a tool: it is never trained on, and what it spells never
becomes a control token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ...tools import Search, Tool, ToolCall
from ..core import Reply
from ..question import RESULT_CHARACTERS, TOOL_TIMEOUT, QuestionEnv, Verdict
from ..tasks import Tasks
from .grade import QAGrade, QAGrader, normalise
from .task import QATask

SYSTEM = (
    "Answer the question. Search for the facts that you need. "
    "Put the final answer, a few words, between <answer> and </answer>."
)
CUTOFFS = (1, 3, 5, 10, 20)  # of recall, as far as a search shows so many


class SearchEnv(QuestionEnv):
    """Ask a question of fact, let the agent search, pay an exact match.

    Behind every step `info` holds `searches`, their number so far, and, where the task names its gold passages,
    `recall`: for each cutoff the share of these that were among the first so many results of any search. With the
    answer come `em`, `f1` and `sub_em`.

    Args:
        tasks: The questions. The expert and the recall need tasks that are `QATask`.
        tools: A `Search`, and maybe more.
        format: How calls are written (`turngym.tools.FORMATS`).
        system: The system prompt, in front of the format's own instructions.
        max_turns: Turn limit, the answer included.
        tool_timeout: Seconds after which a tool that has not answered counts as unable to run.
        expert: Makes a player that answers these questions from what it is shown, where there is one.

    Raises:
        ValueError: A search could show more than an observation carries.
    """

    shared: ClassVar[frozenset[str]] = QuestionEnv.shared | {"expert"}
    whole: ClassVar[bool] = True  # the last answer counts, so that none can be given twice

    def __init__(
        self,
        tasks: Tasks,
        tools: Sequence[Tool],
        format: str = "tags",
        system: str = SYSTEM,
        max_turns: int = 6,
        tool_timeout: float = TOOL_TIMEOUT,
        expert: Callable[[], Any] | None = None,
    ) -> None:
        for tool in tools:
            if isinstance(tool, Search) and tool.longest > RESULT_CHARACTERS:
                raise ValueError(
                    f"k is {tool.k} and passage_chars is {tool.passage_chars}: a search could show {tool.longest} "
                    f"characters, and an observation carries {RESULT_CHARACTERS}; lower one of them"
                )
        super().__init__(tasks, QAGrader(), tools, format, system, max_turns, tool_timeout)
        self.expert = expert

    def on_step(self, text: str) -> Reply:
        """Run the first tool call of `text`, or grade it, and say how the searches went so far."""
        reply = super().on_step(text)
        return replace(reply, info={**reply.info, **self._retrieved()})

    def gold(self) -> list[str]:
        """Run the gold queries that are left, as far as there are turns, then answer."""
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        queries = self.task.queries if isinstance(self.task, QATask) and "search" in self.toolbox.tools else ()
        left = queries[self.turn : self.max_turns - 1]
        calls = [self.format.render(ToolCall("search", {"query": query})) for query in left]
        return [*calls, f"<answer>{self.task.gold}</answer>"]

    def used(self, answer: str) -> bool:
        """Return whether the words of `answer` stand side by side in what a tool gave."""
        said = normalise(answer)
        return bool(said) and any(f" {said} " in f" {normalise(result)} " for result in self.results)

    def measures(self, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        """Return EM, F1 and sub-EM, each by its best gold."""
        grades = [verdict for verdict in verdicts if isinstance(verdict, QAGrade)]
        if not grades:  # another grader has taken the place of this environment's own
            return {}
        return {name: max(getattr(grade, name) for grade in grades) for name in ("em", "f1", "sub_em")}

    def _retrieved(self) -> dict[str, Any]:
        tool = self.toolbox.tools.get("search")
        if not isinstance(tool, Search):
            return {}
        info: dict[str, Any] = {"searches": len(tool.found)}
        gold = set(self.task.passages) if isinstance(self.task, QATask) else set()
        if gold:
            cutoffs = sorted({cutoff for cutoff in CUTOFFS if cutoff < tool.k} | {tool.k})
            seen = {cutoff: {one for found in tool.found for one in found[:cutoff]} for cutoff in cutoffs}
            info["recall"] = {str(cutoff): len(gold & ids) / len(gold) for cutoff, ids in seen.items()}
        return info
