"""Grades answers to tasks of reasoning-gym.

Its scorers are lenient, each in its own way: some evaluate text, some read only the beginning of an
answer, some give points for any answer at all. So `find_fault` looks at an answer first, and only
one that is of the right form is scored, in a child process (`worker`). Answers to two data sets
never reach a scorer: `countdown` is computed here, and integrals are checked by sympy.
"""

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
from .tasks import INTEGRATION, SIZE, Gold, make_data_set

MAX_ANSWER = 20_000
"""The longest answer that is scored, in characters."""

_COUNTDOWN = "countdown"  # its answers are expressions of given numbers; they are computed here
_GSM = "gsm_symbolic"  # its scorer takes the first number of a text

# The score from which an answer is right, if it is not 1.
_FULL_SCORES = {
    "polynomial_equations": 0.99,  # its scorer measures distances, and rounding is no mistake
}

# `\text{Monday}` is read as `Monday`.
_TEXT_COMMAND = re.compile(r"^\\text ?\{([^{}]*)\}$")

_workers = Pool(Path(__file__).with_name("worker.py"), memory_mb=4096, grown_mb=1024)


class ReasoningGrader:
    """Grades answers to reasoning-gym's tasks with its own scorers, from any thread.

    The grade is 1 or 0: only a full score counts.

    Args:
        deadline: Seconds that a scorer may take for an answer; after that the answer earns 0.

    Raises:
        ValueError: If the deadline is not above 0.
    """

    def __init__(self, deadline: float = 10.0) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        self.deadline = deadline

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Grade the last `\boxed{}` of a completion.

        Args:
            completion: The text of the agent.
            gold: The `Gold` of a task. Any other text is compared with the answer as text.

        Raises:
            GraderFailure: If the scorer cannot run.
        """
        boxed = extract_answer(completion)
        if boxed is None:
            return Grade(score=0.0, answer=None, how="no-answer")
        answer = _TEXT_COMMAND.sub(r"\1", boxed)
        if not isinstance(gold, Gold):
            is_right = answer == gold.strip()
            return Grade(score=float(is_right), answer=boxed, how="string")
        fault = find_fault(answer, gold)
        if fault is not None:
            return Grade(score=0.0, answer=boxed, how="failed", error=fault)
        if gold.entry.data_set == INTEGRATION:
            return self._grade_integral(boxed, _read_formula(answer), gold)
        if gold.entry.data_set == _COUNTDOWN:
            # `find_fault` computed its value.
            return Grade(score=1.0, answer=boxed, how="reasoning-gym")
        return self._ask_scorer(boxed, _spell_for_scorer(answer, gold), gold)

    def _ask_scorer(self, boxed: str, spelling: str, gold: Gold) -> Grade:
        """Return the verdict of the data set's own scorer, which runs in a child process.

        Args:
            boxed: The answer as it stands in the box, for the grade.
            spelling: The answer as the scorer reads it.
            gold: Names the entry that is answered.
        """
        request = {
            "dataset": gold.entry.data_set,
            "seed": gold.entry.seed,
            "size": SIZE,
            "index": gold.entry.place,
            "answer": spelling,
        }
        try:
            reply = ask(_workers, "reasoning-gym", request, self.deadline)
        except Deadline:
            return self._grade_timeout(boxed)
        except Died as error:
            fault = f"scoring killed the grader's process: {error}"
            return Grade(score=0.0, answer=boxed, how="failed", error=fault)
        full_score = _FULL_SCORES.get(gold.entry.data_set, 1.0)
        is_right = reply["score"] >= full_score
        how = "failed" if "error" in reply else "reasoning-gym"
        return Grade(score=float(is_right), answer=boxed, how=how, error=reply.get("error"))

    def _grade_integral(self, boxed: str, integral: Expression, gold: Gold) -> Grade:
        """Grade an integral by its scorer's rule: its derivative must be the task's integrand."""
        data_set = make_data_set(gold.entry.data_set, gold.entry.seed)
        metadata = data_set[gold.entry.place]["metadata"]
        integrand = _read_formula(metadata["integrand"])
        try:
            is_right = is_integral(integral, integrand, metadata["variable"], self.deadline)
        except NotDecided as error:
            if error.status is Status.TIMEOUT:
                return self._grade_timeout(boxed)
            return Grade(score=0.0, answer=boxed, how="failed", error=str(error))
        return Grade(score=float(is_right), answer=boxed, how="reasoning-gym")

    def _grade_timeout(self, boxed: str) -> Grade:
        error = f"scoring took over {self.deadline:g} s"
        return Grade(score=0.0, answer=boxed, how="timeout", error=error)


def find_fault(answer: str, gold: Gold) -> str | None:
    """Return why an answer earns nothing whatever its scorer would say; None if it is scored.

    An answer to `countdown` without a fault is right, as its value is compared here.

    Args:
        answer: The content of the box.
        gold: The task's answer, and the entry that it answers.
    """
    if len(answer) > MAX_ANSWER:
        return f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
    if _is_not_finite(answer) and not _is_not_finite(gold):
        return "the box holds no finite value; it needs the value"
    if gold.entry.data_set in (_COUNTDOWN, INTEGRATION):
        return _find_fault_of_expression(answer, gold)
    fault = _find_fault_of_form(answer, gold)
    if fault is None and gold.entry.data_set == _GSM:
        fault = _find_fault_of_number(answer, gold)
    if fault is None:
        fault = _find_fault_of_sign(answer, gold)
    return fault


_NOT_FINITE_WORDS = frozenset(
    {"nan", "inf", "infinity", "infty", "oo", "zoo", "nanj", "infj", "infinityj", "∞"}
)
# May be beyond the largest double, 1.8e308: an exponent of two digits or more, or many digits.
_MAYBE_TOO_LARGE = re.compile(r"[0-9.]+[eE]\+?[0-9]{2,}|[0-9]{309,}")


def _is_not_finite(text: str) -> bool:
    """Return whether a text has a word such as `nan` or `inf`, or a number beyond all doubles."""
    # Full-width and other compatibility characters become ASCII, as Python's parser reads them.
    text = unicodedata.normalize("NFKC", text)
    words = re.findall(r"[a-z]+|∞", text.lower())
    if not _NOT_FINITE_WORDS.isdisjoint(words):
        return True
    for number in _MAYBE_TOO_LARGE.findall(text):
        # `float` cannot read two decimal points; no scorer can either.
        if number.count(".") < 2 and math.isinf(float(number)):
            return True
    return False


_DECIMAL = r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*"

# What the whole answer must look like, for scorers that would evaluate another text, or that read
# only the beginning of it.
_FORMS = {
    "advanced_geometry": re.compile(r"[^,]*(?:,[^,]*)?"),  # a value, or two coordinates
    "binary_matrix": re.compile(r"\d+(?:\s+\d+)*", re.ASCII),
    "fraction_simplification": re.compile(
        r"""
        \$*\s*
        (?: \\d?frac\s* \{\s*\d+\s*\} \s* \{\s*\d+\s*\}  # \frac{1}{2}
          | -?\d+\s*/\s*\d+                              # 1/2
        )
        \s*\$*
        """,
        re.ASCII | re.VERBOSE,
    ),
    "n_queens": re.compile(r"[Q_\s]+", re.ASCII),
    # A text without digits (there is no solution), or numbers.
    "polynomial_equations": re.compile(rf"\D*|{_DECIMAL}(?:,{_DECIMAL})*", re.ASCII),
    "spiral_matrix": re.compile(r"-?\d+(?:\s+-?\d+)*", re.ASCII),
    "time_intervals": re.compile(
        r"""
        -?\d+ (?:\s+days?)?              # 3 days
        | (?: -?\d+[ ]days?, \s* )?      # 3 days, 04:05:06.789
          -?\d{1,4}:\d{2} (?: :\d{2} (?:\.\d+)? )?
        """,
        re.ASCII | re.VERBOSE,
    ),
}

# What stands between the words of an answer, for scorers that ignore all words after the last one
# that they expect.
_WORD_SEPARATORS = {"letter_jumble": re.compile(r"\s+"), "word_sorting": re.compile(r"\s*,\s*")}


def _find_fault_of_form(answer: str, gold: Gold) -> str | None:
    """Return why an answer does not have the form that its data set asks for; None if it has."""
    name = gold.entry.data_set
    if name in _FORMS and not _FORMS[name].fullmatch(answer.strip()):
        return "the box holds something else than one answer of the form that the task asks for"
    if name == "time_intervals":
        for mark in ":,":
            if (mark in answer) != (mark in gold):
                return "the answer is of another form than the right one: days, a time, or both"
    if name in _WORD_SEPARATORS:
        separator = _WORD_SEPARATORS[name]
        if len(separator.split(answer)) != len(separator.split(gold)):
            return "the answer has more or fewer words than the right one"
    if name == "figlet_font":
        # Its scorer counts the letters that are in their place, and is content with ten of them.
        letters = "".join(answer.split())
        if letters.lower() != gold.strip().lower():
            return "the answer is another word"
    return None


# A Python word that joins or computes values, such as `or` in `3*x or 4*x`.
_KEYWORD = re.compile(r"(?<![A-Za-z])(?:or|and|not|if|else|for|in|is|lambda)(?![A-Za-z])")


def _find_fault_of_expression(answer: str, gold: Gold) -> str | None:
    """Return why an expression for `countdown` or an integral is not accepted; None if it is."""
    if _KEYWORD.search(answer):
        return "the box holds several answers; it needs the one answer"
    try:
        if gold.entry.data_set == _COUNTDOWN:
            return _find_fault_of_countdown(answer, gold)
        return _find_fault_of_variables(answer, gold)
    except NoExpression as error:
        return f"the box holds no expression: {error}; it needs the answer alone"


def _find_fault_of_countdown(answer: str, gold: Gold) -> str | None:
    """Return why an expression has not the gold's numbers and value; None if it has both.

    Raises:
        NoExpression: If one of the two is no expression.
    """
    expression = read_expression(answer)
    gold_expression = read_expression(gold)
    if Counter(expression.numbers) != Counter(gold_expression.numbers):
        return "the expression uses other numbers than the task gives, or others as often"
    if expression.value != gold_expression.value:
        return "the expression has another value"
    return None


# Names of the constant that an integral may end with.
_INTEGRATION_CONSTANTS = frozenset(
    {"C", "c", "K", "k", "C1", "C_1", "c1", "c_1", "const", "constant"}
)


def _find_fault_of_variables(answer: str, gold: Gold) -> str | None:
    """Return why an integral has other variables than the gold; None if it has none.

    Raises:
        NoExpression: If one of the two is no formula.
    """
    answer_names = _read_formula(answer).names
    gold_names = _read_formula(gold).names
    other_names = answer_names - gold_names - CONSTANTS - _INTEGRATION_CONSTANTS
    if other_names:
        return f"the integral is of other variables, too: {', '.join(sorted(other_names))}"
    return None


def _read_formula(text: str) -> Expression:
    """Read a formula of variables and functions as sympy spells it, such as `3*x**2 + sin(x)`.

    Raises:
        NoExpression: If it is none.
    """
    return read_expression(text, names=True, functions=FUNCTIONS, powers=True)


# An integer or decimal number, also with commas between thousands: 28,080.50
_NUMERAL = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")

# A sign that, beside a number, leaves something to compute: an operator, a minus that is no hyphen
# of a word, a call such as `sqrt(`, or a factorial.
_OPERATION = re.compile(r"[+*/^\\<>×÷·√²³½¼¾]|(?<![A-Za-z])-|[A-Za-z]\(|[0-9]!")


def _find_fault_of_number(answer: str, gold: Gold) -> str | None:
    """Return why an answer is not the one number of the gold; None if it may be.

    The sign is left to `_find_fault_of_sign`.
    """
    try:
        number = read_number(answer)
        gold_number = read_number(gold)
    except ZeroDivisionError:
        return "the answer divides by zero"
    if number is not None and gold_number is not None:
        is_same = abs(number.value) == abs(gold_number.value)
        return None if is_same else "the number is another one"
    if len(_NUMERAL.findall(answer)) > 1 or _OPERATION.search(answer):
        return "the box holds several numbers, or something to compute; it needs the one number"
    return None


def _find_fault_of_sign(answer: str, gold: Gold) -> str | None:
    """Return why a number has not the gold's sign, which scorers that look for digits ignore."""
    try:
        gold_number = read_number(gold)
        number = read_number(answer)
    except ZeroDivisionError:
        return "the answer divides by zero"
    if gold_number is None or number is None:
        return None
    if (gold_number.value < 0) != (number.value < 0):
        return "the number has the other sign"
    return None


def _spell_for_scorer(answer: str, gold: Gold) -> str:
    """Return an answer that has no fault in the spelling that its scorer reads.

    Only `gsm_symbolic` needs another one: its number without commas, units and words.
    """
    if gold.entry.data_set != _GSM:
        return answer
    numeral = _NUMERAL.search(answer)
    if numeral is None:
        return answer
    if read_number(answer) is not None and read_number(gold) is not None:
        return str(gold)  # `find_fault` found that the two numbers are equal
    return numeral[0].replace(",", "")
