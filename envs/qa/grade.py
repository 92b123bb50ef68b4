"""Whether a completion answers a question of fact: exact match after SQuAD's normalisation; beside it F1 and sub-EM.

Rajpurkar et al. 2016, SQuAD, section 6.1 (normalisation, EM, F1); Yang et al. 2018, HotpotQA (yes, no and noanswer are
right only as they are); Jin et al. 2025, Search-R1 (sub-EM). Only an exact match is paid.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from ..math.extract import behind_thoughts, extract_answer

CLOSED = frozenset({"yes", "no", "noanswer"})  # HotpotQA's answers that share no word with any other
MAX_ANSWER = 5000  # characters of an answer that is compared
OPEN, CLOSE = "<answer>", "</answer>"

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf)\s*\{([^{}]*)\}")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class QAGrade(NamedTuple):
    """What the grader says of one completion.

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
    """Grades answers to questions of fact, from any thread."""

    @staticmethod
    def check_gold(gold: str) -> None:
        """Raise ValueError if nothing of `gold` is left to compare an answer with."""
        if not normalise(gold):
            raise ValueError(f"the gold answer {gold!r} is empty without its punctuation and articles")

    def grade(self, *, completion: str, gold: str) -> QAGrade:
        """Compare the answer in `completion` with `gold`."""
        answer = find_answer(completion)
        if answer is None:
            return QAGrade(0.0, None, "no-answer")
        if len(answer) > MAX_ANSWER:
            return QAGrade(0.0, answer, "too-long")
        em, f1, sub_em = measures(answer, gold)
        return QAGrade(em, answer, "exact" if em else "wrong", em, f1, sub_em)


def normalise(text: str) -> str:
    """Return `text` in lower case without ASCII punctuation, articles and surplus blanks, removed in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


@lru_cache(maxsize=8)  # a completion is graded against each of its task's golds
def find_answer(text: str) -> str | None:
    r"""Return what the last `<answer>…</answer>` behind the reasoning holds, else what a `\boxed{}` there does.

    A box inside the tags is opened. None where there is neither, where it is empty, or a `<think>` is never closed.
    """
    said = behind_thoughts(text)
    start = said.rfind(OPEN, 0, max(said.rfind(CLOSE), 0))
    if start < 0:
        return _boxed(said)
    answer = said[start + len(OPEN) : said.index(CLOSE, start)]
    return _boxed(answer) or answer.strip() or None


def measures(answer: str, gold: str) -> tuple[float, float, float]:
    """Return EM, F1 and sub-EM of an answer."""
    said, right = normalise(answer), normalise(gold)
    if said == right:
        return 1.0, 1.0, 1.0
    if said in CLOSED or right in CLOSED:
        return 0.0, 0.0, 0.0
    return 0.0, _f1(said.split(), right.split()), float(right in said)


def _f1(said: list[str], right: list[str]) -> float:
    common = (Counter(said) & Counter(right)).total()
    # 2PR/(P+R) with P = common/len(said), R = common/len(right)
    return 2 * common / (len(said) + len(right)) if common else 0.0


def _boxed(text: str) -> str | None:
    box = extract_answer(text)
    return box and (_TEXT.sub(r"\1", box).strip() or None)
