"""The search environment: a question of fact, a search tool to answer it with, and a grader.

Retrieved text reaches the agent as messages of the user or of a tool: it is never trained on, and what it spells never
becomes a control token. Exact match after SQuAD's normalisation is paid; beside it F1 and sub-EM are measured.
(Rajpurkar et al. 2016, SQuAD, section 6.1: normalisation, EM, F1; Yang et al. 2018, HotpotQA: yes, no and noanswer are
right only as they are; Jin et al. 2025, Search-R1: sub-EM.)
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from ...tools import AnyTool, Search, ToolCall
from ...tools.thoughts import without_thoughts
from ..core import Reply
from ..math.extract import extract_answer, stated_answer
from ..question import RESULT_CHARACTERS, TOOL_TIMEOUT, Graded, QuestionEnv
from ..tasks import Task, Tasks

CLOSED = frozenset(
    {"yes", "no", "noanswer"}
)  # HotpotQA's answers that share no word with any other
MAX_ANSWER = 5000  # characters of an answer that is compared
WORDS = 8  # of a last line that is read as an answer
OPEN, CLOSE = "<answer>", "</answer>"

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf)\s*\{([^{}]*)\}")
_RAISED = re.compile(r"(?<=\d)(?=[²³¹¼-¾⁰-₉⅐-↉①-⒛])")  # 10² is not 102
_WORD = re.compile(r"\w+")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_INVISIBLE = str.maketrans(
    "", "", "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
)  # joiners, marks of direction


@dataclass(frozen=True)
class QATask(Task):
    """A question to answer with searches: `queries`, in order, show the passages with the ids `passages`.

    These together give the answer, which none of the queries holds. Both are empty where they are unknown.
    """

    passages: tuple[str, ...] = field(default=(), repr=False)
    queries: tuple[str, ...] = field(default=(), repr=False)


class QAGrade(NamedTuple):
    """A grader's verdict on one completion.

    Args:
        score: The reward, which is `em`.
        answer: What the agent answered; None when there is no answer.
        how: What decided: `exact`, `wrong`, `no-answer` or `too-long`.
        em: Exact match: 1.0 or 0.0.
        f1: Harmonic mean of precision and recall over tokens, 0 to 1.
        sub_em: Whether the answer holds a gold: 1.0 or 0.0.
    """

    score: float
    answer: str | None
    how: str
    em: float = 0.0
    f1: float = 0.0
    sub_em: float = 0.0


class QAGrader:
    """Grades answers to questions of fact, from any thread.

    `lenient`: an answer that a sentence or a bare last line gives counts, too, where none is marked as one.
    """

    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient

    @staticmethod
    def check_gold(gold: str) -> None:
        """Raise ValueError if nothing of `gold` is left to compare an answer with."""
        if not normalise(gold):
            raise ValueError(
                f"the gold answer {gold!r} is empty without its punctuation and articles"
            )

    def grade(self, *, completion: str, gold: str) -> QAGrade:
        """Compare the answer in `completion` with `gold`."""
        if (answer := find_answer(completion, self.lenient)) is None:
            return QAGrade(0.0, None, "no-answer")
        if len(answer) > MAX_ANSWER:
            return QAGrade(0.0, answer, "too-long")
        em, f1, sub_em = measures(answer, gold)
        return QAGrade(em, answer, "exact" if em else "wrong", em, f1, sub_em)


def normalise(text: str) -> str:
    """Return `text` in lower case without ASCII punctuation, articles and surplus blanks, removed in this order.

    Beforehand it loses characters that nobody sees, its case is folded, and it gets its Unicode normal form, NFKC in
    words: ASCII text is as SQuAD has it.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", _RAISED.sub(" ", text.translate(_INVISIBLE))).casefold()
        # Folding can take a letter apart. Marks are left: three dots in one are no punctuation to SQuAD.
        text = unicodedata.normalize(
            "NFC", _WORD.sub(lambda word: unicodedata.normalize("NFKC", word[0]), text)
        )
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


@lru_cache(maxsize=8)  # a completion is graded against each of its task's golds
def find_answer(text: str, lenient: bool = False) -> str | None:
    r"""Return what the last `<answer>…</answer>` outside of thoughts holds, else what a `\boxed{}` there does.

    A box inside the tags is opened. None where there is neither, where it is empty, or a thought never ends.
    `lenient` takes what a sentence or a bare last line gives where no tag and no box is begun.
    """
    reply = without_thoughts(text)
    start = reply.rfind(OPEN, 0, max(reply.rfind(CLOSE), 0))
    if start < 0:
        unmarked = lenient and OPEN not in reply and "box" not in reply
        return stated_answer(reply, WORDS) if unmarked else _boxed(reply)
    answer = reply[start + len(OPEN) : reply.index(CLOSE, start)]
    return _boxed(answer) or answer.strip() or None


def measures(answer: str, gold: str) -> tuple[float, float, float]:
    """Return EM, F1 and sub-EM of an answer."""
    answered, right = normalise(answer), normalise(gold)
    if not answered or not right:  # empty is no answer, not even to an empty gold
        return 0.0, 0.0, 0.0
    if answered == right:
        return 1.0, 1.0, 1.0
    if answered in CLOSED or right in CLOSED:
        return 0.0, 0.0, 0.0
    words, golds = answered.split(), right.split()
    common = (Counter(words) & Counter(golds)).total()
    # 2PR/(P+R) with P = common/len(words), R = common/len(golds)
    return 0.0, 2 * common / (len(words) + len(golds)), float(right in answered)


def _boxed(text: str) -> str | None:
    box = extract_answer(text)
    return box and (_TEXT.sub(r"\1", box).strip() or None)


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
        answered = normalise(answer)
        return bool(answered) and any(
            f" {answered} " in f" {normalise(result)} " for result in self.results
        )

    def measures(self, verdicts: Sequence[Graded]) -> dict[str, Any]:
        """Return EM, F1 and sub-EM, each by its best gold."""
        grades = [verdict for verdict in verdicts if isinstance(verdict, QAGrade)]
        names = (
            ("em", "f1", "sub_em") if grades else ()
        )  # another grader may have taken the place of its own
        return {name: max(getattr(grade, name) for grade in grades) for name in names}
