"""Whether a text answers a question of fact: exact match and F1, as SQuAD normalises answers.

(Rajpurkar et al. 2016, SQuAD, section 6.1: normalisation, EM, F1; Yang et al. 2018, HotpotQA: yes, no and noanswer are
right only as they are; Jin et al. 2025, Search-R1: sub-EM.)
"""

import re
import string
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from ...tools.thoughts import without_thoughts
from ..math.grading.boxed_answer import extract_answer, stated_answer

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
