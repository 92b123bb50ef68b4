"""Whether a completion answers a math question: its box is compared exactly where possible, else by math-verify.

No reward for hedging or for restating the question: where the gold is one value, a box with several values or a
relation is refused, and where it is a number, so is unworked arithmetic. math-verify runs in a killable child process;
the agent's text is never evaluated in this one.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from ...tools.process import Deadline, Died, Pool, StartFailure
from ..core import EnvFailure
from ..rewards import Grade as Grade
from .extract import EXTRACTIONS, Extract
from .notation import RELATION, based, formula, ranges, split_unit, spoken, tidy, unnamed, unwrapped, words
from .numbers import read_collections, read_number, same_collections, same_number

MAX_ANSWER = 5000

_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


def ask(workers: Pool, needs: str, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Return a worker's reply; raise GraderFailure where none can start, for want of the package that it `needs`."""
    try:
        return workers.ask(request, deadline)
    except StartFailure as error:
        raise GraderFailure(f"the grader's process cannot start: {error}; check that {needs} imports") from error


_workers = Pool(Path(__file__).with_name("worker.py"))


class MathGrader:
    """Grades math answers, from any thread and after a fork.

    Args:
        deadline: Seconds that math-verify may take for an answer, from when it gets it; after that the answer earns 0.
        shortcuts: Whether an answer that is spelled like the gold is paid without a look at what it says.
        extract: What finds the answer in a completion: `box`, the last box behind the reasoning; `last`, the last
            formula or number where there is no box; `lenient`, what a sentence or a bare last line gives where there is
            no box; or a function that returns the answer, or None.
    """

    def __init__(self, deadline: float = 4.0, *, shortcuts: bool = True, extract: str | Extract = "box") -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        if isinstance(extract, str) and extract not in EXTRACTIONS:
            raise ValueError(f"extract is {extract!r}; it must be one of {', '.join(EXTRACTIONS)}, or a function")
        self.deadline, self.shortcuts = deadline, shortcuts
        self._extract = EXTRACTIONS[extract] if isinstance(extract, str) else extract
        self._quick = isinstance(extract, str)  # either of them takes a box

    def check_gold(self, gold: str) -> None:
        """Raise ValueError if `gold` has no value that an answer could be compared with."""
        try:
            fault = None if read_number(gold) is not None else _fault(tidy(gold))
        except ZeroDivisionError:
            fault = "divides by zero"
        if fault:
            raise ValueError(f"the gold answer {gold!r} {fault}")

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Compare the answer in `completion` with `gold`; raise `GraderFailure` if that cannot be done.

        `how` says what decided: `no-answer`, `string`, `numeric`, `math-verify`, `timeout` (math-verify was still at
        it) or `failed` (the answer was refused, or could not be compared).
        """
        if self._quick and (verdict := quick_verdict(completion, gold)) is not None:
            answer, right, alike = verdict
            return Grade(1.0 if right else 0.0, answer, "string" if alike and self.shortcuts else "numeric")
        if (found := self._extract(completion)) is None:
            return Grade(0.0, None, "no-answer")
        score, how, error = self._compare(gold, found)
        return Grade(score, found, how, error)

    def same(self, first: str, second: str) -> bool:
        """Return whether two extracted answers mean the same: an equal text, an equal number, or one graded as the other.

        It is symmetric: answers are the same if either one, taken as the gold, pays the other. Two plain numbers are
        compared exactly, as fast as `grade` does it. Raises `GraderFailure` where math-verify is needed and cannot run.
        """
        if first == second:
            return True
        try:
            one, other = read_number(first), read_number(second)
        except ZeroDivisionError:
            return False
        if one is not None and other is not None:
            if one.unit and other.unit and one.unit != other.unit:
                return False
            return same_number(one, other) or same_number(other, one)
        return any(self._compare(gold, answer)[0] > 0 for gold, answer in ((first, second), (second, first)))

    @staticmethod
    def close() -> None:
        """End the processes of math-verify that are at rest; all graders share them, and start new ones if need be."""
        _workers.close()

    def _compare(self, gold: str, answer: str) -> tuple[float, str, str | None]:
        if len(answer) > MAX_ANSWER:
            return 0.0, "failed", f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
        if self.shortcuts and _text(gold) and _text(gold) == _text(answer):
            return 1.0, "string", None
        gold, answer = ranges(*unnamed(_first_number(unwrapped(tidy(gold))), unwrapped(tidy(answer))))
        try:
            verdict = _numbers(gold, answer)
        except ZeroDivisionError:
            return 0.0, "failed", "the answer divides by zero"
        if verdict := verdict or _words(gold, answer):
            return verdict
        if reason := refusal(gold, answer, number=_is_number(gold)):
            return 0.0, "failed", reason
        verdict = _math_verify(*_bare(gold, answer), self.deadline)
        reason = _no_value(gold, answer) if verdict[0] else None
        return (0.0, "failed", reason) if reason else verdict


_SHORT = (
    r"-?(?:[0-9]{1,14}|[0-9]{1,3}(?:,[0-9]{3}){1,3}|[0-9]{1,7}\.[0-9]{1,7}|[0-9]{1,14}/[1-9][0-9]{0,13}"
    r"|\\[dt]?frac\{[0-9]{1,14}\}\{[1-9][0-9]{0,13}\})"
)
_match_short = re.compile(_SHORT).fullmatch
_match_box = re.compile(rf"\\boxed\{{({_SHORT})\}}").match
_AS_RATIO = str.maketrans("}", "/", "\\dtfrac{,")  # 1,234 is 1234, and \frac{1}{2} is 1/2/
_THOUGHT = "</think>"


def quick_verdict(completion: str, gold: str) -> tuple[str, bool, bool] | None:
    """Return the answer, whether it is right, and whether it is spelled like the gold; None if that is not plain."""
    if _THOUGHT in completion:
        completion = completion[completion.rindex(_THOUGHT) + len(_THOUGHT) :]
    start = completion.find("box") - 1
    if start < 0 or "<think>" in completion or "```" in completion:
        return None
    if (box := _match_box(completion, start)) is None or completion.find("box", box.end()) >= 0:
        return None
    answer = box[1]
    if answer == gold:
        return answer, True, True
    if _match_short(gold) is None:
        return None
    (top, bottom), (over, under) = _ratio(answer), _ratio(gold)
    return answer, top * under == over * bottom, False


def _ratio(number: str) -> tuple[int, int]:
    top, _, bottom = number.translate(_AS_RATIO).partition("/")
    whole, _, decimals = top.partition(".")
    return int(whole + decimals), 10 ** len(decimals) * int(bottom.rstrip("/") or 1)


def _numbers(gold: str, answer: str) -> tuple[float, str, str | None] | None:
    """Return the verdict on texts that hold nothing but plain numbers; None for others."""
    right, given = read_number(gold), read_number(answer)
    if right is not None and given is not None:
        if right.unit and given.unit and right.unit != given.unit:
            return 0.0, "failed", "the box has another unit"
        return float(same_number(right, given)), "numeric", None
    known, read = read_collections(gold), read_collections(answer)
    if right and read:
        return 0.0, "failed", "the box holds several values; it needs the one value"
    if known and given:
        return 0.0, "numeric", None
    same = same_collections(known, read) if known and read else None
    return None if same is None else (float(same), "numeric", None)


def _words(gold: str, answer: str) -> tuple[float, str, str | None] | None:
    """Return the verdict on a gold of words, or on numbers with a base; None for others."""
    # As a formula a word is a product of letters, equal to its anagrams.
    if (text := words(gold)) is not None:
        return float(text == spoken(answer)), "string", None
    if (based_on := based(gold) or based(answer)) is None:
        return None
    # Either may leave out the base that the other one names.
    known, read = (based(text) or based(f"{text}_{based_on[1]}") for text in (gold, answer))
    return float(known is not None and known == read), "numeric", None


def _is_number(text: str) -> bool:
    try:
        return read_number(text) is not None
    except ZeroDivisionError:
        return False


def _text(answer: str) -> str:  # equal forms mean equal answers
    text = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", tidy(answer)).strip().rstrip(".")
    return re.sub(r"(?<!\w) | (?!\w)", "", text)


def _fault(gold: str) -> str | None:
    """Return why a gold that is no plain number has no value; None if it has one."""
    if not gold:
        return "is empty"
    if not re.search(r"\w", gold):
        return "has no letter or digit"
    if re.search(r"^[*/=^]|[-+*/=^_\\]$", gold):
        return "begins or ends with an operator"
    depths = [0, *accumulate(1 if brace == "{" else -1 for brace in re.findall(r"(?<!\\)[{}]", gold))]
    return "has unbalanced braces" if depths[-1] or min(depths) < 0 else None


def _first_number(gold: str) -> str:
    r"""Return the number that a chain of numbers such as `2/3 \approx 0.67` begins with; any other gold as it is."""
    first, *others = re.split(r" ?(?:=|\\approx(?![A-Za-z])) ?", gold)
    return first if others and all(map(_is_number, (first, *others))) else gold


def _bare(gold: str, answer: str) -> tuple[str, str]:
    """Return both without units and degree signs, which math-verify would take for letters and powers."""
    if (";" in gold) != (";" in answer) and "=" in gold and "=" in answer:  # lists of equations
        gold, answer = gold.replace(";", ","), answer.replace(";", ",")
    (gold, unit), (answer, other) = split_unit(formula(gold)), split_unit(formula(answer))
    if unit and other and unit != other:
        gold, answer = f"{gold} \\text{{{unit}}}", f"{answer} \\text{{{other}}}"
    degrees = "^{\\circ}" if _ANGLE.search(gold + answer) else ""
    return gold.replace("°", degrees), answer.replace("°", degrees)


def _math_verify(gold: str, answer: str, deadline: float) -> tuple[float, str, str | None]:
    request, died = {"gold": gold, "answer": answer, "seconds": deadline}, ""
    for _ in range(2):  # a worker that dies once may be the machine's fault; twice on the same answer is the answer's
        try:
            reply = ask(_workers, "math-verify", request, deadline)
            return float(reply["equal"]), "failed" if "error" in reply else "math-verify", reply.get("error")
        except Deadline:
            return 0.0, "timeout", f"comparing took over {deadline:g} s"
        except Died as error:
            died = f"comparing killed the grader's process: {error}"
    return 0.0, "failed", died


_POWER_OF_TEN = re.compile(r"\\(?:times|cdot) ?10 ?\^ ?(?:\{ ?-?\d+ ?\}|\d)")
_UNWORKED = re.compile(
    r"\d \d|[+*×·÷!]|(?<=[\w)}]) ?-|//|\) ?\( ?-?[\d.]|\d ?\( ?[\d.]|\) ?\d|\^[^^]*\^"
    r"|\\(?:cdot|times|div|ast|binom|gcd|lcm|[bp]?mod|lfloor|lceil|operatorname|[lr]?vert|log|ln|lg|exp"
    r"|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])|[|]"
)
_EITHER_SIGN = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|[±∓]")
# Numbers in other notations, and powers of 0.
_OTHERWISE = re.compile(r"(?<![\w.])0[xXoObB][\da-fA-F]|(?<=[\d.)]) ?_|(?<![\d.])0(?:\.0*+)? ?\^")
_INFINITE = re.compile(r"\\infty(?![A-Za-z])|(?<![A-Za-z\\])(?:nan|inf(?:inity)?|oo|zoo)(?![A-Za-z])", re.IGNORECASE)
_GREEK = (
    r"(?:[a-z]*(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|phi|chi"
    r"|psi|omega)|ell|hbar)(?![A-Za-z])"
)
_WORDS = re.compile(r"\\(?:text|mathrm) ?\{[^{}]*\}")
_COMMAND = re.compile(
    rf"{_WORDS.pattern}"
    r"|\\(?:begin|end) ?\{[^{}]*\}(?: ?\{[clr| ]*\})?"
    rf"|\\(?!{_GREEK})[A-Za-z]+|(?<![A-Za-z])(?:pi|sqrt|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp)(?![A-Za-z])",
    re.IGNORECASE,
)
_UNEVALUATED = re.compile(
    r"[∫∑∏]|(?<![A-Za-z])\\?(?:i*int|oint|sum|prod|coprod|lim|limsup|liminf)(?![A-Za-z])|\\big(?:cup|cap)(?![A-Za-z])"
    r"|\\operatorname\*? ?\{ ?(?:lim|int|sum|prod|max|min|sup|inf)|\\(?:max|min|sup|inf|det)(?![A-Za-z])"
    r"|\\frac ?\{ ?(?:d|\\partial|\\mathrm ?\{ ?d ?\})(?: ?\^ ?\{?\w\}?)? ?\} ?\{ ?(?:d|\\partial|\\mathrm)"
)


def refusal(gold: str, answer: str, *, number: bool) -> str | None:
    """Return why an answer is not paid for a gold (a plain `number` or not), both tidy; None if it may be."""
    if re.search(r"\\f?box(?:ed)?(?![A-Za-z])", answer):
        return "the box holds another box and more; it needs the answer alone"
    if not re.search(r"[^\W_]|\\infty|\\emptyset|\\varnothing|∅|∞", re.sub(r"\\text\w* ?\{\W*\}", "", answer)):
        return "the box holds no letter or digit; it needs the answer"
    if _UNEVALUATED.search(answer) and not _UNEVALUATED.search(gold):
        return "the box holds a sum, product, integral or limit; it needs its value"
    if _EITHER_SIGN.search(answer) and not (_EITHER_SIGN.search(gold) or several(gold)):
        return "the box holds two values; it needs the one value"
    if several(gold) or gold.startswith("\\{") or _EITHER_SIGN.search(gold):
        return None
    if related := len(RELATION.findall(gold)):
        chain = related == 1 and len(RELATION.findall(answer)) > 1
        return "the box holds a chain of relations; it needs one" if chain else None
    if RELATION.search(answer) or several(answer):
        return "the box holds a relation or several values; it needs the one value"
    if number and "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if number and _UNWORKED.search(_POWER_OF_TEN.sub("", answer)):
        return "the box holds unworked arithmetic; it needs the number"
    return None


def _no_value(gold: str, answer: str) -> str | None:
    """Return why an answer that math-verify takes for one value is none, both tidy; None if it is one."""
    # It reads `0x2A` as a product with 0, `1_0` without its subscript, and 1 for whatever is put to the power of 0.
    if several(gold) or gold.startswith("\\{") or RELATION.search(gold):
        return None
    if _OTHERWISE.search(answer) and not _OTHERWISE.search(gold):
        return "the box holds a number in another notation or a power of 0; it needs the value"
    if _INFINITE.search(answer) and "," not in answer and not _INFINITE.search(gold):
        return "the box holds no finite value; it needs the value"
    named = not _WORDS.sub("", gold).strip()  # `\text{(B)}`, of which `B` is the short form
    if not named and _lettered(answer) and not _lettered(gold):
        return "the box holds a letter; it needs the value"
    if _is_number(gold) and re.search(r"\\pi(?![A-Za-z])", answer):
        return "the box holds unworked arithmetic; it needs the number"
    return None


def _lettered(text: str) -> bool:  # with a letter that stands for something: none of a command, a function or words
    return re.search(r"[A-Za-z]", _COMMAND.sub(" ", text)) is not None


def several(text: str) -> bool:
    """Return whether there is a comma outside all brackets, or a line break outside a matrix."""
    if "\\\\" in text and "\\begin" not in text:
        return True
    depth = 0
    for mark in re.findall(r"[()\[\]{},]", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and depth == 0:
            return True
    return False
