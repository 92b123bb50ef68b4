r"""Whether a completion answers a math question: its box is compared exactly where possible, else by math-verify.

No reward for hedging or for restating the question: where the gold is one value, a box with several values or a
relation is refused, and where it is a number, so is unworked arithmetic. math-verify runs in a killable child process;
the agent's text is never evaluated in this one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ...tools import process
from .extract import extract_answer
from .helper import GraderFailure, Helper
from .plain import read_number, same_number
from .spelling import based, formula, split_unit, spoken, tidy, words

MAX_ANSWER = 5000

__all__ = ["Grade", "GraderFailure", "MathGrader"]

_ASSIGNMENT = re.compile(r"^[A-Za-z](?:_\{?\w+\}?)?(?: ?\( ?[A-Za-z] ?\))? ?(?:=|\\in(?![A-Za-z])) ?")
_RELATION = re.compile(
    r"[=<>≤≥≠≈;]|\\(?:leq?|geq?|neq?|lt|gt|approx|equiv|sim|in|to|lor|land|vee|wedge|iff|implies|Rightarrow)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:or|and)(?![A-Za-z])"
)
_POWER_OF_TEN = re.compile(r"\\(?:times|cdot) ?10 ?\^ ?(?:\{ ?-?\d+ ?\}|\d)")
_UNWORKED = re.compile(
    r"\d \d|[+*×·÷!]|(?<=[\w)}]) ?-|//|\\(?:cdot|times|div|ast|pm|mp|sum|prod|binom|gcd|[bp]?mod|lfloor)(?![A-Za-z])"
)

_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


@dataclass(frozen=True)
class Grade:
    """What the grader says of one completion.

    Args:
        score: 1.0 for the right answer, else 0.0.
        answer: What the box holds; None when there is no answer.
        how: What decided: `no-answer`, `string`, `numeric`, `math-verify`, `timeout` (math-verify was still at it) or
            `failed` (the answer was refused, or could not be compared).
        error: Why it failed.
    """

    score: float
    answer: str | None
    how: str
    error: str | None = None


class MathGrader:
    """Grades math answers, from any thread.

    Args:
        deadline: Seconds that math-verify may take for an answer; after that the answer earns 0.
        shortcuts: Whether an answer that is spelled like the gold is paid without a look at what it says.
    """

    def __init__(self, deadline: float = 5.0, *, shortcuts: bool = True) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        self.deadline = deadline
        self.shortcuts = shortcuts

    def check_gold(self, gold: str) -> None:
        """Raise ValueError if `gold` has no value that an answer could be compared with."""
        try:
            if read_number(gold) is not None:
                return
        except ZeroDivisionError:
            raise ValueError(f"the gold answer {gold!r} divides by zero") from None
        fault = _fault(tidy(gold))
        if fault:
            raise ValueError(f"the gold answer {gold!r} {fault}")

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Compare the last `\boxed{}` of `completion` with `gold`; raise `GraderFailure` if that cannot be done."""
        answer = extract_answer(completion)
        if answer is None:
            return Grade(0.0, None, "no-answer")
        score, how, error = self._compare(gold, answer)
        return Grade(score, answer, how, error)

    def _compare(self, gold: str, answer: str) -> tuple[float, str, str | None]:
        if len(answer) > MAX_ANSWER:
            return 0.0, "failed", f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
        if self.shortcuts and _text(gold) and _text(gold) == _text(answer):
            return 1.0, "string", None
        gold, answer = _first_number(tidy(gold)), tidy(answer)
        if not _RELATION.search(gold):
            answer = _ASSIGNMENT.sub("", answer)
        try:
            right, given = read_number(gold), read_number(answer)
        except ZeroDivisionError:
            return 0.0, "failed", "the answer divides by zero"
        if right is not None and given is not None:
            if right.unit and given.unit and right.unit != given.unit:
                return 0.0, "failed", "the box has another unit"
            return float(same_number(right, given)), "numeric", None
        # As a formula a word is a product of letters, equal to its anagrams.
        if (said := words(gold)) is not None:
            return float(said == spoken(answer)), "string", None
        if (based_on := based(gold) or based(answer)) is not None:
            # Either may leave out the base that the other one names.
            known, read = (based(text) or based(f"{text}_{based_on[1]}") for text in (gold, answer))
            return float(known is not None and known == read), "numeric", None
        refusal = _refusal(gold, answer, number=right is not None)
        if refusal:
            return 0.0, "failed", refusal
        return _math_verify(*_bare(gold, answer), self.deadline)


def _text(answer: str) -> str:
    """Return a form in which spelling the same thing the same way is equality."""
    text = re.sub(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}", r"\1", tidy(answer)).strip().rstrip(".")
    return re.sub(r"(?<!\w) | (?!\w)", "", text)


def _fault(gold: str) -> str | None:
    """Return what keeps a gold that is no plain number from having a value."""
    if not gold:
        return "is empty"
    if not re.search(r"\w", gold):
        return "has no letter or digit"
    if re.search(r"^[*/=^]|[-+*/=^_\\]$", gold):
        return "begins or ends with an operator"
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", gold):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            break
    return "has unbalanced braces" if depth else None


def _several(text: str) -> bool:
    """Whether there is a comma outside all brackets."""
    depth = 0
    for mark in re.findall(r"[()\[\]{},]", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 0:
            return True
    return False


def _refusal(gold: str, answer: str, *, number: bool) -> str | None:
    """Return why an answer of this form is not paid for a gold of that form."""
    if _RELATION.search(gold) or _several(gold) or gold.startswith("\\{"):
        return None
    if _RELATION.search(answer) or _several(answer):
        return "the box holds a relation or several values; it needs the one value"
    if number and "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if number and _UNWORKED.search(_POWER_OF_TEN.sub("", answer)):
        return "the box holds unworked arithmetic; it needs the number"
    return None


def _first_number(gold: str) -> str:
    r"""Return the number that a chain of numbers such as `2/3 \approx 0.67` begins with; any other gold as it is."""
    first, *others = re.split(r" ?(?:=|\\approx(?![A-Za-z])) ?", gold)
    return first if others and None not in map(read_number, (first, *others)) else gold


def _bare(gold: str, answer: str) -> tuple[str, str]:
    """Return both without units and degree signs, which math-verify would take for letters and powers."""
    (gold, unit), (answer, other) = split_unit(formula(gold)), split_unit(formula(answer))
    if unit and other and unit != other:
        gold, answer = f"{gold} \\text{{{unit}}}", f"{answer} \\text{{{other}}}"
    degrees = "^{\\circ}" if _ANGLE.search(gold + answer) else ""
    return gold.replace("°", degrees), answer.replace("°", degrees)


def _math_verify(gold: str, answer: str, deadline: float) -> tuple[float, str, str | None]:
    try:
        return _ask(gold, answer, deadline)
    except process.Died:
        # Once may be the machine's fault; twice on the same answer is the answer's.
        try:
            return _ask(gold, answer, deadline)
        except process.Died as error:
            return 0.0, "failed", f"comparing killed the grader's process: {error}"


def _ask(gold: str, answer: str, deadline: float) -> tuple[float, str, str | None]:
    try:
        reply = _worker.ask({"gold": gold, "answer": answer}, deadline)
    except process.Deadline:
        return 0.0, "timeout", f"comparing took over {deadline:g} s"
    return float(reply["equal"]), "failed" if "error" in reply else "math-verify", reply.get("error")


_worker = Helper(Path(__file__).with_name("worker.py"), "math-verify")
