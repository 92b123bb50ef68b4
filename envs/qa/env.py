"""The search environment: a question of fact, a search tool to answer it with, and a grader.

Retrieved text reaches the agent as messages of the user or of a tool: it is never trained on, and what it spells never
becomes a control token. Exact match after SQuAD's normalisation is paid; beside it F1 and sub-EM are measured.
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


@dataclass(frozen=True)
class QATask(Task):
    """A question to answer with searches: `queries`, in order, show the passages with the ids `passages`.

    These together give the answer, which none of the queries holds. Both are empty where they are unknown.
    """

    passages: tuple[str, ...] = field(default=(), repr=False)
    queries: tuple[str, ...] = field(default=(), repr=False)


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
        expert: Makes a player that answers these questions from what it is shown, where there is one.
        lenient: Whether answers are read as `QAGrader` does that is lenient.

    The other arguments are those of `QuestionEnv`.

    Raises ValueError where a search could show more than an observation carries.
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
                limits, most = (
                    f"k is {tool.k} and passage_chars is {tool.passage_chars}",
                    RESULT_CHARACTERS,
                )
                shown = f"a search could show {tool.longest} characters, and an observation carries {most}"
                raise ValueError(f"{limits}: {shown}; lower one of them")
        super().__init__(tasks, QAGrader(lenient), tools, format, system, max_turns, tool_timeout)
        self.expert = expert

    def on_step(self, text: str) -> Reply:
        reply, tool = super().on_step(text), self.toolbox.tools.get("search")
        if not isinstance(tool, Search):
            return reply
        info: dict[str, Any] = {**reply.info, "searches": len(tool.found)}
        if gold := set(self.task.passages) if isinstance(self.task, QATask) else set():
            cutoffs = sorted({cutoff for cutoff in CUTOFFS if cutoff < tool.k} | {tool.k})
            seen = {
                cutoff: {one for found in tool.found for one in found[:cutoff]}
                for cutoff in cutoffs
            }
            info["recall"] = {
                str(cutoff): len(gold & ids) / len(gold) for cutoff, ids in seen.items()
            }
        return replace(reply, info=info)

    def gold(self) -> list[str]:
        """Run the gold queries that are left, as far as there are turns, then answer."""
        if self.task is None:
            raise RuntimeError("gold() needs an episode: call reset() first")
        queries = (
            self.task.queries
            if isinstance(self.task, QATask) and "search" in self.toolbox.tools
            else ()
        )
        left = queries[self.turn : self.max_turns - 1]
        calls = [self.format.render(ToolCall("search", {"query": query})) for query in left]
        return [*calls, f"<answer>{self.task.gold}</answer>"]

    def used(self, answer: str) -> bool:
        """Return whether the words of `answer` are next to each other in a tool's result."""
        answered = normalise_text(answer)
        return bool(answered) and any(
            f" {answered} " in f" {normalise_text(result)} " for result in self.results
        )

    def measures(self, verdicts: Sequence[Graded]) -> dict[str, Any]:
        """Return EM, F1 and sub-EM, each by its best gold."""
        grades = [verdict for verdict in verdicts if isinstance(verdict, QAGrade)]
        names = (
            ("em", "f1", "sub_em") if grades else ()
        )  # another grader may have taken the place of its own
        return {name: max(getattr(grade, name) for grade in grades) for name in names}
