"""Whether a text answers a question of fact: exact match and F1, with SQuAD's normalisation.

`QAGrader` finds the answer in a completion (`find_answer`) and compares it with a gold answer
(`measure_answer`) after both were normalised (`normalise_text`).

The definitions are those of Rajpurkar et al. 2016, SQuAD, section 6.1 (normalisation, EM, F1); of
Yang et al. 2018, HotpotQA (yes, no and noanswer are right only as they are); and of Jin et al.
2025, Search-R1 (sub-EM).
"""

import re
import string
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from ...tools.thoughts import without_thoughts
from ..math.grading.boxed_answer import extract_answer, stated_answer

# HotpotQA's closed answers: they earn no F1 for a word that they share with another answer.
CLOSED = frozenset({"yes", "no", "noanswer"})
MAX_ANSWER = 5000  # characters; a longer answer is not compared
MAX_LAST_LINE_WORDS = 8  # a longer last line is not read as an answer (lenient grading)
OPEN = "<answer>"
CLOSE = "</answer>"

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WORD = re.compile(r"\w+")
# Between a digit and a superscript, a fraction or an enclosed number: NFKC would turn 10² into 102.
_BEFORE_RAISED_DIGIT = re.compile(r"(?<=\d)(?=[²³¹¼-¾⁰-₉⅐-↉①-⒛])")
# Characters that nobody sees: a soft hyphen, joiners, marks of direction, a byte order mark.
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")
# A TeX command that only sets its text: `\text{New York}`.
_TEX_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf)\s*\{([^{}]*)\}")


class QAGrade(NamedTuple):
    """A grader's verdict on one completion.

    Args:
        score: The reward, which is `em`.
        answer: What the agent answered; None if there is no answer.
        how: What decided: `exact`, `wrong`, `no-answer` or `too-long`.
        em: Exact match: 1.0 or 0.0.
        f1: Harmonic mean of precision and recall over words, 0 to 1.
        sub_em: Whether the answer contains the gold: 1.0 or 0.0.
    """

    score: float
    answer: str | None
    how: str
    em: float = 0.0
    f1: float = 0.0
    sub_em: float = 0.0


class QAGrader:
    """Grades answers to questions of fact, from any thread.

    Args:
        lenient: Whether an answer also counts that a sentence or a bare last line gives, if the
            completion marks none.
    """

    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient

    @staticmethod
    def check_gold(gold: str) -> None:
        """Check that something of a gold answer is left to compare an answer with.

        Raises:
            ValueError: `gold` holds nothing but punctuation and articles.
        """
        if not normalise_text(gold):
            raise ValueError(
                f"the gold answer {gold!r} is empty without its punctuation and articles"
            )

    def grade(self, *, completion: str, gold: str) -> QAGrade:
        """Compare the answer in `completion` with `gold`; the score is 1.0 for an exact match."""
        answer = find_answer(completion, self.lenient)
        if answer is None:
            return QAGrade(score=0.0, answer=None, how="no-answer")
        if len(answer) > MAX_ANSWER:
            return QAGrade(score=0.0, answer=answer, how="too-long")
        measures = measure_answer(answer, gold)
        score = measures.em
        how = "exact" if score else "wrong"
        return QAGrade(score, answer, how, *measures)


def normalise_text(text: str) -> str:
    """Return a text as SQuAD compares it: `"The  Beatles!"` -> `"beatles"`.

    It is put in lower case, then ASCII punctuation, articles and surplus blanks are removed, in
    this order. A text that is not ASCII, of which SQuAD says nothing, first loses its invisible
    characters, its case is folded, and its words get the normal form NFKC.
    """
    if not text.isascii():
        text = _BEFORE_RAISED_DIGIT.sub(" ", text.translate(_INVISIBLE))
        text = unicodedata.normalize("NFC", text).casefold()
        # NFKC for words only: it would turn `…` into three dots, which SQuAD removes as
        # punctuation.
        text = _WORD.sub(lambda word: unicodedata.normalize("NFKC", word[0]), text)
        # Folding may have taken a letter apart (`İ` becomes `i` and a dot above).
        text = unicodedata.normalize("NFC", text)
    without_punctuation = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", without_punctuation).split())


# A completion is graded against each gold of its task, and its answer is the same every time.
@lru_cache(maxsize=8)
def find_answer(completion: str, lenient: bool = False) -> str | None:
    r"""Return the answer in a completion: in its last `<answer>…</answer>`, else in its `\boxed{}`.

    Args:
        completion: The agent's reply. Its thoughts are not searched.
        lenient: If the reply has neither a tag nor a box, take what a sentence or a bare last line
            states ("The answer is Paris.").

    Returns:
        The answer, without a box inside the tags. None if there is none, if it is empty, or if a
        thought never ends.
    """
    reply = without_thoughts(completion)
    # The last tag that is closed: a later one without its end is ignored.
    last_close = reply.rfind(CLOSE)
    last_open = reply.rfind(OPEN, 0, last_close) if last_close >= 0 else -1
    if last_open >= 0:
        answer_start = last_open + len(OPEN)
        answer = reply[answer_start : reply.index(CLOSE, answer_start)]
        return _find_boxed_answer(answer) or answer.strip() or None

    # The agent has tried to mark its answer if there is any trace of a tag or of a box.
    has_mark = OPEN in reply or "box" in reply
    if lenient and not has_mark:
        return stated_answer(reply, MAX_LAST_LINE_WORDS)
    return _find_boxed_answer(reply)


def _find_boxed_answer(text: str) -> str | None:
    r"""Return what the last `\boxed{}` holds, without TeX's text commands; None if it is empty.

    Example: `"\\boxed{\\text{New York}}"` -> `"New York"`.
    """
    boxed = extract_answer(text)
    if boxed is None:
        return None
    return _TEX_TEXT.sub(r"\1", boxed).strip() or None


class AnswerMeasures(NamedTuple):
    """How well an answer agrees with a gold answer; the measures are those of `QAGrade`."""

    em: float
    f1: float
    sub_em: float


_EXACT = AnswerMeasures(em=1.0, f1=1.0, sub_em=1.0)
_WRONG = AnswerMeasures(em=0.0, f1=0.0, sub_em=0.0)


def measure_answer(answer: str, gold: str) -> AnswerMeasures:
    """Return exact match, F1 over words and sub-EM of an answer, after normalisation of both.

    An answer or a gold of which normalisation leaves nothing matches nothing.
    """
    answer = normalise_text(answer)
    gold = normalise_text(gold)
    if not answer or not gold:
        return _WRONG
    if answer == gold:
        return _EXACT
    if answer in CLOSED or gold in CLOSED:
        return _WRONG

    answer_words = answer.split()
    gold_words = gold.split()
    common = (Counter(answer_words) & Counter(gold_words)).total()
    # 2PR / (P + R) with precision P = common / answer words and recall R = common / gold words.
    f1 = 2 * common / (len(answer_words) + len(gold_words))
    return AnswerMeasures(em=0.0, f1=f1, sub_em=float(gold in answer))
