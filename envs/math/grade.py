r"""Whether a completion answers a math question: its box is compared exactly where possible, else by math-verify.

No reward for hedging or for restating the question: where the gold is one value, a box with several values or a
relation is refused, and where it is a number, so is unworked arithmetic. math-verify runs in a killable child process;
the agent's text is never evaluated in this one.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from ...tools import process
from ..core import EnvFailure
from .extract import extract_answer
from .plain import read_number, same_number, tidy

MAX_ANSWER = 5000
START_SECONDS = 60.0

_ASSIGNMENT = re.compile(r"^[A-Za-z](?:_\{?\w+\}?)? ?(?:=|\\in(?![A-Za-z])) ?")
_RELATION = re.compile(
    r"[=<>≤≥≠≈;]|\\(?:leq?|geq?|neq?|lt|gt|approx|equiv|sim|in|to|lor|land|vee|wedge|iff|implies|Rightarrow)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:or|and)(?![A-Za-z])"
)
_POWER_OF_TEN = re.compile(r"\\(?:times|cdot) ?10 ?\^ ?(?:\{ ?-?\d+ ?\}|\d)")
_UNWORKED = re.compile(
    r"\d \d|[+*×·÷!]|(?<=[\w)}]) ?-|//|\\(?:cdot|times|div|ast|pm|mp|sum|prod|binom|gcd|[bp]?mod|lfloor)(?![A-Za-z])"
)


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


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
    """

    def __init__(self, deadline: float = 5.0) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        self.deadline = deadline

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
        if _text(gold) and _text(gold) == _text(answer):
            return 1.0, "string", None
        if not _RELATION.search(tidy(gold)):
            answer = _ASSIGNMENT.sub("", tidy(answer))
        try:
            right, given = read_number(gold), read_number(answer)
        except ZeroDivisionError:
            return 0.0, "failed", "the answer divides by zero"
        if right is not None and given is not None and (right.unit == given.unit or not (right.unit and given.unit)):
            return float(same_number(right, given)), "numeric", None
        if re.fullmatch(r"[A-Za-z ]{4,}", _text(gold)):
            # As a formula a word is a product of letters, equal to its anagrams.
            return float(_text(gold).lower() == _text(answer).lower()), "string", None
        refusal = _refusal(gold, answer, number=right is not None)
        if refusal:
            return 0.0, "failed", refusal
        return _math_verify(gold, answer, self.deadline)


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
    gold, answer = tidy(gold), tidy(answer)
    if _RELATION.search(gold) or _several(gold):
        return None
    if _RELATION.search(answer) or _several(answer):
        return "the box holds a relation or several values; it needs the one value"
    if number and "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if number and _UNWORKED.search(_POWER_OF_TEN.sub("", answer)):
        return "the box holds unworked arithmetic; it needs the number"
    return None


# --- the child process: one for all graders of this process, started when first needed

_lock = threading.Lock()
_child: process.Child | None = None


def _forget() -> None:
    global _lock, _child
    _lock, _child = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def _math_verify(gold: str, answer: str, deadline: float) -> tuple[float, str, str | None]:
    with _lock:
        try:
            return _ask(gold, answer, deadline)
        except process.Died:
            # Once may be the machine's fault; twice on the same answer is the answer's.
            try:
                return _ask(gold, answer, deadline)
            except process.Died as error:
                return 0.0, "failed", f"comparing killed the grader's process: {error}"


def _ask(gold: str, answer: str, deadline: float) -> tuple[float, str, str | None]:
    child = _running()
    try:
        reply = child.request({"gold": gold, "answer": answer}, deadline)
    except process.Deadline:
        return 0.0, "timeout", f"comparing took over {deadline:g} s"
    return float(reply["equal"]), "failed" if "error" in reply else "math-verify", reply.get("error")


def _running() -> process.Child:
    global _child
    if _child is None or not _child.alive:
        worker = Path(__file__).with_name("worker.py")
        try:
            _child = process.Child([sys.executable, "-I", str(worker), process.__file__])
            _child.request({}, START_SECONDS)
        except (OSError, process.Died, process.Deadline) as error:
            raise GraderFailure(
                f"the grader's process cannot start: {error}; check that math-verify imports"
            ) from error
    return _child
