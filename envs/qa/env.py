"""The search environment: a question of fact, a search tool to answer it with, and a grader.

Retrieved text reaches the agent as messages of the user or of a tool: it is never trained on, and
what it spells never becomes a control token. The reward is an exact match after SQuAD's
normalisation; F1 and sub-EM are only measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ...tools import AnyTool, Search, ToolCall
from ..outcomes import Reply
from ..question.env import RESULT_CHARACTERS, Graded, QuestionEnv
from ..question.toolbox import TOOL_TIMEOUT
from ..tasks import Task, Tasks
from .grader import QAGrade, QAGrader, normalise_text

SYSTEM = (
    "Answer the question. Search for the facts that you need. "
    "Put the final answer, a few words, between <answer> and </answer>."
)
# Recall is measured among the first 1, 3, … results, as far as a search shows that many.
CUTOFFS = (1, 3, 5, 10, 20)


@dataclass(frozen=True)
class QATask(Task):
    """A question to answer with searches.

    Args:
        passages: The ids of the gold passages, which together give the answer; empty if unknown.
        queries: Searches that show these passages, in order; none of them holds the answer. Empty
            if unknown.
    """

    passages: tuple[str, ...] = field(default=(), repr=False)
    queries: tuple[str, ...] = field(default=(), repr=False)


class SearchEnv(QuestionEnv):
    """Ask a question of fact and let the agent search; the reward is an exact match.

    After every step `info` holds `searches`, the number of searches so far, and, if the task names
    its gold passages, `recall`: for each cutoff, the share of these that were among so many first
    results of any search. With the answer come `em`, `f1` and `sub_em`.

    The arguments that are not listed are those of `QuestionEnv`.

    Args:
        tasks: The questions. The expert and the recall need tasks that are `QATask`.
        tools: A `Search`, and maybe more.
        expert: Makes a player that answers these questions from what it is shown, if there is one.
        lenient: Whether answers are read as a lenient `QAGrader` reads them.

    Raises:
        ValueError: A search could show more than an observation carries.
    """

    shared: ClassVar[frozenset[str]] = QuestionEnv.shared | {"expert"}
    grades_all: ClassVar[bool] = True  # the last answer counts, so that none can be given twice

    def __init__(
        self,
        tasks: Tasks,
        tools: Sequence[AnyTool],
        format: str = "tags",
        system: str = SYSTEM,
        max_turns: int = 6,
        tool_timeout: float = TOOL_TIMEOUT,
        expert: Callable[[], Any] | None = None,
        lenient: bool = False,
    ) -> None:
        for tool in tools:
            if isinstance(tool, Search) and tool.longest > RESULT_CHARACTERS:
                raise ValueError(
                    f"k is {tool.k} and passage_chars is {tool.passage_chars}: "
                    f"a search could show {tool.longest} characters, and an observation carries "
                    f"{RESULT_CHARACTERS}; lower one of them"
                )
        super().__init__(
            tasks,
            QAGrader(lenient),
            tools=tools,
            format=format,
            system=system,
            max_turns=max_turns,
            tool_timeout=tool_timeout,
        )
        self.expert = expert

    def on_step(self, text: str) -> Reply:
        """Search or grade the answer, as `QuestionEnv` does, and add the measures to `info`."""
        reply = super().on_step(text)
        search = self.toolbox.tools.get("search")
        if not isinstance(search, Search):
            return reply
        info: dict[str, Any] = {**reply.info, "searches": len(search.found)}
        if isinstance(self.task, QATask) and self.task.passages:
            info["recall"] = _measure_recall(self.task.passages, search)
        return replace(reply, info=info)

    def gold(self) -> list[str]:
        """Return the gold queries from this turn on, as far as there are turns, then the answer."""
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        queries: tuple[str, ...] = ()
        if isinstance(self.task, QATask) and "search" in self.toolbox.tools:
            # The last turn is for the answer.
            queries = self.task.queries[self.turn : self.max_turns - 1]
        searches = [self.format.render(ToolCall("search", {"query": query})) for query in queries]
        return [*searches, f"<answer>{self.task.gold}</answer>"]

    def used(self, answer: str) -> bool:
        """Return whether the words of `answer` stand side by side in a tool's result."""
        normal_answer = normalise_text(answer)
        if not normal_answer:
            return False
        # Blanks around both: `art` is no word of `start`.
        return any(f" {normal_answer} " in f" {normalise_text(result)} " for result in self.results)

    def measures(self, verdicts: Sequence[Graded]) -> dict[str, Any]:
        """Return EM, F1 and sub-EM of an answer, each by the gold that is best for it.

        There are none if the environment was given another grader than its own.
        """
        grades = [verdict for verdict in verdicts if isinstance(verdict, QAGrade)]
        if not grades:
            return {}
        return {
            "em": max(grade.em for grade in grades),
            "f1": max(grade.f1 for grade in grades),
            "sub_em": max(grade.sub_em for grade in grades),
        }


def _measure_recall(gold_passages: Sequence[str], search: Search) -> dict[str, float]:
    """Return the share of the gold passages that the searches of an episode have shown.

    Args:
        gold_passages: The ids of the gold passages, at least one.
        search: The tool, with the ids that each search has shown.

    Returns:
        The recall among the first results of every search, by their number as a text, for JSON.
    """
    gold_ids = set(gold_passages)
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff < search.k] + [search.k]
    recall = {}
    for cutoff in cutoffs:
        shown_ids: set[str] = set()
        for ranked_ids in search.found:
            shown_ids.update(ranked_ids[:cutoff])
        recall[str(cutoff)] = len(gold_ids & shown_ids) / len(gold_ids)
    return recall
