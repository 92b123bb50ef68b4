"""Answers to tasks of reasoning-gym, scored by its own scorer once ours has read them."""

import math
import re
import unicodedata
from collections import Counter
from pathlib import Path

from ....tools import Status
from ....tools.subprocesses.process import Deadline, Died, Pool
from ..grading.boxed_answer import extract_answer
from ..grading.calculus import FUNCTIONS, NotDecided, is_integral
from ..grading.expressions import CONSTANTS, Expression, NoExpression, read_expression
from ..grading.grader import Grade, ask
from ..grading.numbers import read_number
from .tasks import _CONFINED, SIZE, Gold, _entries

MAX_ANSWER = 20_000
_FULL = {"polynomial_equations": 0.99}  # its scorer measures distances, and rounding is no mistake
_COMPUTED = "countdown"  # the data set whose answers are computed here
_NUMBER = "gsm_symbolic"  # the data set whose scorer takes the first number of a text
_CONSTANTS = frozenset(
    {"C", "c", "K", "k", "C1", "C_1", "c1", "c_1", "const", "constant"}
)  # of integration
_DECIMAL = r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*"
# Between the parts of an answer whose scorer ignores all parts behind the last that it expects.
_SEPARATORS = {"letter_jumble": re.compile(r"\s+"), "word_sorting": re.compile(r"\s*,\s*")}
# The whole form of an answer, where a scorer would evaluate another one, or reads no more of it than its beginning.
_FORMS = {
    name: re.compile(form, re.ASCII)
    for name, form in {
        "advanced_geometry": r"[^,]*(?:,[^,]*)?",
        "binary_matrix": r"\d+(?:\s+\d+)*",
        "fraction_simplification": r"\$*\s*(?:\\d?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|-?\d+\s*/\s*\d+)\s*\$*",
        "n_queens": r"[Q_\s]+",
        "polynomial_equations": rf"\D*|{_DECIMAL}(?:,{_DECIMAL})*",
        "spiral_matrix": r"-?\d+(?:\s+-?\d+)*",
        "time_intervals": r"-?\d+(?:\s+days?)?|(?:-?\d+ days?,\s*)?-?\d{1,4}:\d{2}(?::\d{2}(?:\.\d+)?)?",
    }.items()
}
_NUMERAL = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")
_WORKED = re.compile(
    r"[+*/^\\<>×÷·√²³½¼¾]|(?<![A-Za-z])-|[A-Za-z]\(|[0-9]!"
)  # beside a number: something to compute
_KEYWORD = re.compile(r"(?<![A-Za-z])(?:or|and|not|if|else|for|in|is|lambda)(?![A-Za-z])")
_NOT_FINITE = frozenset(
    {"nan", "inf", "infinity", "infty", "oo", "zoo", "nanj", "infj", "infinityj", "∞"}
)
_HUGE = re.compile(r"[0-9.]+[eE]\+?[0-9]{2,}|[0-9]{309,}")


class ReasoningGrader:
    """Grades answers to reasoning-gym's tasks with its own scorers, from any thread; only a full score is paid.

    A scorer may take `deadline` seconds for an answer; after that the answer earns 0.
    """

    def __init__(self, deadline: float = 10.0) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        self.deadline = deadline

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Score the last `\boxed{}`; a gold that is no `Gold` is compared as text. Raises `GraderFailure`."""
        if (answer := extract_answer(completion)) is None:
            return Grade(0.0, None, "no-answer")
        plain = re.sub(r"^\\text ?\{([^{}]*)\}$", r"\1", answer)
        if not isinstance(gold, Gold):
            return Grade(float(plain == gold.strip()), answer, "string")
        if refusal := _refusal(plain, gold):
            return Grade(0.0, answer, "failed", refusal)
        if gold.entry[0] == _CONFINED:
            return self._check_integral(answer, _formula(plain), gold)
        if gold.entry[0] == _COMPUTED:
            return Grade(1.0, answer, "reasoning-gym")
        return self._ask(answer, _spelt(plain, gold), gold)

    def _ask(self, answer: str, spelt: str, gold: Gold) -> Grade:
        """Return the verdict of the data set's own scorer on an answer in the spelling that it reads."""
        name, seed, index = gold.entry
        request = {"dataset": name, "seed": seed, "size": SIZE, "index": index, "answer": spelt}
        try:
            reply = ask(_workers, "reasoning-gym", request, self.deadline)
        except Deadline:
            return Grade(0.0, answer, "timeout", f"scoring took over {self.deadline:g} s")
        except Died as error:
            return Grade(0.0, answer, "failed", f"scoring killed the grader's process: {error}")
        how = "failed" if "error" in reply else "reasoning-gym"
        return Grade(float(reply["score"] >= _FULL.get(name, 1.0)), answer, how, reply.get("error"))

    def _check_integral(self, answer: str, integral: Expression, gold: Gold) -> Grade:
        """Return the verdict on an integral, by the rule of its scorer: its derivative is the task's integrand."""
        name, seed, index = gold.entry
        told = _entries(name, seed)[index]["metadata"]
        try:
            right = is_integral(
                integral, _formula(told["integrand"]), told["variable"], self.deadline
            )
        except NotDecided as error:
            if error.status is Status.TIMEOUT:
                return Grade(0.0, answer, "timeout", f"scoring took over {self.deadline:g} s")
            return Grade(0.0, answer, "failed", str(error))
        return Grade(float(right), answer, "reasoning-gym")


_workers = Pool(Path(__file__).with_name("worker.py"), memory_mb=4096, grown_mb=1024)


def _refusal(answer: str, gold: Gold) -> str | None:
    """Return why an answer is not passed to a scorer; None if it is."""
    if len(answer) > MAX_ANSWER:
        return f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
    if _infinite(answer) and not _infinite(gold):
        return "the box holds no finite value; it needs the value"
    name = gold.entry[0]
    if name in _FORMS and not _FORMS[name].fullmatch(answer.strip()):
        return "the box holds something else than one answer of the form that the task asks for"
    if name == "time_intervals" and any((mark in answer) != (mark in gold) for mark in ":,"):
        return "the answer is of another form than the right one: days, a time, or both"
    if name in _SEPARATORS and len(_SEPARATORS[name].split(answer)) != len(
        _SEPARATORS[name].split(gold)
    ):
        return "the answer has more or fewer words than the right one"
    if name == "figlet_font" and "".join(answer.split()).lower() != gold.strip().lower():
        return "the answer is another word"  # the scorer counts letters that stand in their place, and ten are enough
    if name in (_COMPUTED, _CONFINED):
        if _KEYWORD.search(answer):
            return "the box holds several answers; it needs the one answer"
        try:
            return _miscounted(answer, gold) if name == _COMPUTED else _foreign(answer, gold)
        except NoExpression as error:
            return f"the box holds no expression: {error}; it needs the answer alone"
    if name == _NUMBER and (refusal := _no_single_number(answer, gold)):
        return refusal
    try:  # a number for a number: some scorers look for its digits alone
        right, given = read_number(gold), read_number(answer)
    except ZeroDivisionError:
        return "the answer divides by zero"
    opposite = right is not None and given is not None and (right.value < 0) != (given.value < 0)
    return "the number has the other sign" if opposite else None


def _miscounted(answer: str, gold: Gold) -> str | None:
    """Return why an expression does not make the right answer's value of the right answer's numbers; None if it does.

    Raises NoExpression where it is none.
    """
    given, right = read_expression(answer), read_expression(gold)
    if Counter(given.numbers) != Counter(right.numbers):
        return "the expression uses other numbers than the task gives, or others as often"
    return None if given.value == right.value else "the expression has another value"


def _foreign(answer: str, gold: Gold) -> str | None:
    """Return which names an integral has that are neither of the right one nor a constant; None if it has none.

    Raises NoExpression where it is no formula.
    """
    foreign = _formula(answer).names - _formula(gold).names - CONSTANTS - _CONSTANTS
    return (
        f"the integral is of other variables, too: {', '.join(sorted(foreign))}"
        if foreign
        else None
    )


def _formula(text: str) -> Expression:
    """Read a formula of one variable as sympy spells it; raise NoExpression where it is none."""
    return read_expression(text, names=True, functions=FUNCTIONS, powers=True)


def _no_single_number(answer: str, gold: Gold) -> str | None:
    """Return why an answer is not the one number of the gold; None if it may be."""
    try:
        number, right = read_number(answer), read_number(gold)
    except ZeroDivisionError:
        return "the answer divides by zero"
    if number is not None and right is not None:
        return None if abs(number.value) == abs(right.value) else "the number is another one"
    if len(_NUMERAL.findall(answer)) > 1 or _WORKED.search(answer):
        return "the box holds several numbers, or something to compute; it needs the one number"
    return None


def _spelt(answer: str, gold: Gold) -> str:
    """Return an answer as its scorer reads it: of a number of `gsm_symbolic`, the number without commas and words."""
    if gold.entry[0] != _NUMBER or (numeral := _NUMERAL.search(answer)) is None:
        return answer
    if (
        read_number(answer) is not None and read_number(gold) is not None
    ):  # they are equal, or it were refused
        return str(gold)
    return numeral[0].replace(",", "")


def _infinite(text: str) -> bool:
    """Return whether a text holds `nan`, `inf` and the like as a word of its own, or a number beyond all doubles."""
    text = unicodedata.normalize("NFKC", text)
    if not _NOT_FINITE.isdisjoint(re.findall(r"[a-z]+|∞", text.lower())):
        return True
    return any(
        number.count(".") < 2 and math.isinf(float(number)) for number in _HUGE.findall(text)
    )
