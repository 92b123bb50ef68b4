"""Whether a completion answers a math question: its box is compared exactly where possible, else by math-verify.

No reward for hedging or for restating the question: where the gold is one value, a box with several values or a
relation is refused, and where it is a number, so is unworked arithmetic. math-verify runs in a killable child process;
the agent's text is never evaluated in this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ....tools.subprocesses.process import Deadline, Died, Pool, StartFailure
from ...outcomes import EnvFailure
from ...rewards import Grade as Grade
from .boxed_answer import EXTRACTIONS, Extract
from .names import unnamed
from .notation import (
    RELATION,
    based,
    choice,
    choice_and_content,
    choices,
    formula,
    ranges,
    split_unit,
    spoken,
    tidy,
    unwrapped,
    words,
)
from .numbers import (
    Number,
    other_unit,
    read_number,
    read_ratio,
    read_tidy_number,
    same_number,
    written_quotient,
)
from .signs import has_other_operators, plain_operators
from .values import ElementTexts, Value, order, read_value, readings, same_value, take_apart

MAX_ANSWER = 5000

_ANGLE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


def ask(workers: Pool, needs: str, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Return a worker's reply; raise GraderFailure where none can start, for want of the package that it `needs`."""
    try:
        return workers.ask(request, deadline)
    except StartFailure as error:
        raise GraderFailure(
            f"the grader's process cannot start: {error}; check that {needs} imports"
        ) from error


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

    def __init__(
        self, deadline: float = 4.0, *, shortcuts: bool = True, extract: str | Extract = "box"
    ) -> None:
        if not deadline > 0:
            raise ValueError(f"deadline is {deadline} seconds; it must be above 0")
        if isinstance(extract, str) and extract not in EXTRACTIONS:
            raise ValueError(
                f"extract is {extract!r}; it must be one of {', '.join(EXTRACTIONS)}, or a function"
            )
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
            return Grade(
                1.0 if right else 0.0, answer, "string" if alike and self.shortcuts else "numeric"
            )
        if (found := self._extract(completion)) is None:
            return Grade(0.0, None, "no-answer")
        score, how, error = self._compare(gold, found)
        return Grade(score, found, how, error)

    def same(self, first: str, second: str) -> bool:
        """Return whether two extracted answers mean the same.

        They do if their texts are equal, or if either one, taken as the gold, pays the other: so it is symmetric.
        Two plain numbers are compared exactly, as fast as `grade` does it.

        Raises `GraderFailure` where math-verify is needed and cannot run.
        """
        if first == second:
            return True
        try:
            one, other = read_number(first), read_number(second)
        except ZeroDivisionError:
            return False
        if one is not None and other is not None:
            return not other_unit(one, other) and (
                same_number(one, other) or same_number(other, one)
            )
        return any(
            self._compare(gold, answer)[0] > 0
            for gold, answer in ((first, second), (second, first))
        )

    @staticmethod
    def close() -> None:
        """End the processes of math-verify that are at rest; all graders share them, and start new ones if need be."""
        _workers.close()

    def _compare(self, gold: str, answer: str) -> tuple[float, str, str | None]:
        if len(answer) > MAX_ANSWER:
            return (
                0.0,
                "failed",
                f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read",
            )
        if self.shortcuts and _text(gold) and _text(gold) == _text(answer):
            return 1.0, "string", None
        gold, answer = prepared(gold, answer)
        try:
            verdict = _exact(gold, answer)
        except ZeroDivisionError:
            return 0.0, "failed", "the answer divides by zero"
        if verdict := verdict or _words(gold, answer):
            return verdict
        if reason := refusal(gold, answer):
            return 0.0, "failed", reason
        if (remainder := _remainder(gold, answer)) is not None:
            return self._compare_remainder(remainder)
        return self._formulas([(gold, answer)], gold, answer)

    def _compare_remainder(self, remainder: Remainder) -> tuple[float, str, str | None]:
        """Return the verdict on the elements of two collections that are left when their plain numbers are the same."""
        if remainder.verdict is not None:
            return remainder.verdict
        for gold, answer in remainder.pairs:
            if reason := refusal(gold, answer):
                return 0.0, "failed", reason
        return self._formulas(remainder.pairs, remainder.gold, remainder.answer)

    def _formulas(
        self, pairs: Sequence[tuple[str, str]], gold: str, answer: str
    ) -> tuple[float, str, str | None]:
        """Return math-verify's verdict on two texts, none of whose `pairs` of values may be one that it misreads."""
        verdict = _math_verify(*_bare(gold, answer), self.deadline)
        if verdict[0]:
            for one, other in pairs:
                if reason := _no_value(one, other):
                    return 0.0, "failed", reason
        return verdict


def prepared(gold: str, answer: str) -> tuple[str, str]:
    """Return both texts in one spelling, and without what is around their values: wrapping, names, relations."""
    gold, answer = _first_number(unwrapped(tidy(gold))), unwrapped(tidy(answer))
    if not has_other_operators(gold):
        answer = " ".join(plain_operators(answer).split())
    gold, answer = _one_imaginary_unit(gold, answer)
    return ranges(*unnamed(gold, answer))


_LONE_UPPER_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])")
_LONE_UPPER_E = re.compile(r"(?<![A-Za-z\\])E(?![A-Za-z])")
_J_BEHIND_DIGIT = re.compile(r"(?<=\d) ?j(?![A-Za-z])")
_LONE_I = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
_LONE_E = re.compile(r"(?<![A-Za-z\\])e(?![A-Za-z])")


def _one_imaginary_unit(gold: str, answer: str) -> tuple[str, str]:
    """Return both with `i` and `e` for the `I`, `j` and `E` of programs, where the other text has `i` or `e`."""
    return _as_in(gold, answer), _as_in(answer, gold)


def _as_in(text: str, other: str) -> str:
    if "i" in other and _LONE_I.search(other):
        if _LONE_UPPER_I.search(other) is None:
            text = _LONE_UPPER_I.sub(" i", text)
        text = _J_BEHIND_DIGIT.sub(" i", text)
    if (
        "e" in other
        and "E" in text
        and _LONE_E.search(other)
        and _LONE_UPPER_E.search(other) is None
    ):
        text = _LONE_UPPER_E.sub("e", text)
    return text


def restates(answer: str, gold: str, quotients: frozenset[tuple[int, int]]) -> bool:
    """Return whether an answer is one of `quotients`, as dividend and divisor, in any spelling, and the gold is not.

    Signs, units, brackets and a name in front count for nothing.
    """
    return (
        (written := _quotient(answer)) in quotients
        and written is not None
        and written != _quotient(gold)
    )


def _quotient(text: str) -> tuple[int, int] | None:
    _, text = prepared("", text)
    return written_quotient(text)


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


_NOT_READ = "the box holds no plain number; it needs the number, worked out, and at most its unit"
_ELEMENT_NOT_READ = "the box holds elements that are no plain numbers; it needs them worked out"


def _exact(gold: str, answer: str) -> tuple[float, str, str | None] | None:
    """Return the verdict on a gold that is made of plain numbers; None for others, and where math-verify has to say it.

    Where the gold is read exactly, the answer has to be: so no arithmetic is paid, whatever its signs.
    """
    known = readings(gold)
    if not known:
        return None
    if isinstance(known[0], Number):
        return _number(known[0], gold, answer)
    read = readings(_worked_signs(answer))
    if not read:
        return 0.0, "failed", refusal(gold, answer) or _ELEMENT_NOT_READ
    verdicts = {same_value(one, other) for one in known for other in read}
    if True in verdicts:
        return 1.0, "numeric", None
    return None if None in verdicts else (0.0, "numeric", None)


def _number(known: Number, gold: str, answer: str) -> tuple[float, str, str | None]:
    """Return the verdict on an answer to a gold that is a plain number."""
    given = read_tidy_number(answer) or read_ratio(answer)
    if given is None and (value_and_base := based(answer)) is not None and value_and_base[1] == 10:
        given = Number(value_and_base[0], False, "", False)
    if given is None:
        return 0.0, "failed", refusal(gold, answer) or _NOT_READ
    if other_unit(known, given):
        return 0.0, "failed", "the box has another unit"
    return float(same_number(known, given)), "numeric", None


_SIGNED = re.compile(
    r"(?P<before>(?:.*, ?)?)(?:\\pm|\\mp) ?(?P<value>[^,]+)(?P<behind>(?:,.*)?)", re.DOTALL
)


def _worked_signs(text: str) -> str:
    r"""Return a tidy list with both values for a `\pm` of one of them."""
    if (signed := _SIGNED.fullmatch(text)) is None or read_tidy_number(signed["value"]) is None:
        return text
    return f"{signed['before']}{signed['value']}, -{signed['value']}{signed['behind']}"


class Remainder(NamedTuple):
    """What is left of two collections without the plain numbers that both have, or the verdict on them."""

    verdict: tuple[float, str, str | None] | None
    gold: str = ""
    answer: str = ""
    pairs: tuple[tuple[str, str], ...] = ()


def _remainder(gold: str, answer: str) -> Remainder | None:
    """Return what is left of two collections of plain numbers and formulas, whose numbers are compared exactly.

    None where the gold is no such collection, or the two cannot be taken apart in the same way.
    """
    gold_parts, answer_parts = take_apart(gold), take_apart(answer)
    if gold_parts is None or answer_parts is None:
        return None
    gold_parts, answer_parts = _cells(gold_parts), _cells(answer_parts)
    values = [_read(element) for element in gold_parts.elements]
    if not any(value is not None for value in values):
        return None
    how = order(gold_parts.kind, answer_parts.kind, len(values), len(answer_parts.elements))
    if how == "different":
        return Remainder((0.0, "failed", "the box holds another kind of collection"))
    if how == "tuple":
        return _remainder_of_tuples(gold_parts, answer_parts, values)
    if how in ("set", "list"):
        return _remainder_of_lists(gold_parts, answer_parts, values)
    return None


def _read(text: str) -> Value | None:
    try:
        return read_value(text)
    except ZeroDivisionError:
        return None


def _cells(parts: ElementTexts) -> ElementTexts:
    """Return a matrix as one tuple of its cells, with the lengths of its rows in its kind; others as they are."""
    if parts.kind != "matrix":
        return parts
    rows = [row.split("&") for row in parts.elements]
    shape = "x".join(str(len(row)) for row in rows)
    return ElementTexts(f"matrix {shape}", tuple(cell.strip() for row in rows for cell in row))


def _remainder_of_tuples(
    gold: ElementTexts, answer: ElementTexts, values: Sequence[Value | None]
) -> Remainder:
    if len(gold.elements) != len(answer.elements):
        return Remainder((0.0, "failed", "the box holds another number of values"))
    pairs = []
    for value, one, other in zip(values, gold.elements, answer.elements, strict=True):
        if value is None:
            pairs.append((one, other))
        elif (given := _read(other)) is None:
            return Remainder((0.0, "failed", _ELEMENT_NOT_READ))
        elif not same_value(value, given):
            return Remainder((0.0, "numeric", None))
    if len(pairs) == 1:
        return Remainder(None, *pairs[0], tuple(pairs))
    ones, others = (f"({', '.join(texts)})" for texts in zip(*pairs, strict=True))
    return Remainder(None, ones, others, tuple(pairs))


def _remainder_of_lists(
    gold: ElementTexts, answer: ElementTexts, values: Sequence[Value | None]
) -> Remainder:
    left = list(zip(answer.elements, map(_read, answer.elements), strict=True))
    for value in values:
        if value is None:
            continue
        same = [one for one in left if one[1] is not None and same_value(value, one[1])]
        if not same:
            return Remainder(
                (0.0, "failed", "the box does not hold one of the numbers, worked out")
            )
        left.remove(same[0])
    formulas = [one for value, one in zip(values, gold.elements, strict=True) if value is None]
    others = [text for text, _ in left]
    if not others or (len(formulas) != len(others) and gold.kind != "{}"):
        return Remainder((0.0, "failed", "the box holds another number of values"))
    if len(formulas) == len(others) == 1:
        return Remainder(None, formulas[0], others[0], ((formulas[0], others[0]),))
    return Remainder(None, f"\\{{{', '.join(formulas)}\\}}", f"\\{{{', '.join(others)}\\}}")


def _words(gold: str, answer: str) -> tuple[float, str, str | None] | None:
    """Return the verdict on a gold of words or choices, or on numbers with a base; None for others."""
    # As a formula a word is a product of letters, equal to its anagrams.
    if (text := words(gold)) is not None:
        return float(text == spoken(answer)), "string", None
    chosen, content = choice_and_content(gold)
    if chosen is not None and choice(answer) == chosen:
        return 1.0, "string", None
    if _is_number(content):
        return _exact(content, answer)
    if (several_chosen := choices(gold)) is not None and choices(answer) == several_chosen:
        return 1.0, "string", None
    if (based_on := based(gold)) is None:
        return None
    # The answer may leave out the base.
    read = based(answer) or based(f"{answer}_{based_on[1]}")
    return float(read == based_on), "numeric", None


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
    if not re.search(r"\w", gold) or _empty(unwrapped(gold)):
        return "has no letter or digit"
    if re.search(r"\\f?box(?:ed)?(?![A-Za-z])", unwrapped(gold)):
        return "is a whole solution: give what is in its box alone"
    if re.search(r"^[*/=^]|[-+*/=^_\\]$", gold):
        return "begins or ends with an operator"
    depths = [
        0,
        *accumulate(1 if brace == "{" else -1 for brace in re.findall(r"(?<!\\)[{}]", gold)),
    ]
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
    for _ in range(
        2
    ):  # a worker that dies once may be the machine's fault; twice on the same answer is the answer's
        try:
            reply = ask(_workers, "math-verify", request, deadline)
            return (
                float(reply["equal"]),
                "failed" if "error" in reply else "math-verify",
                reply.get("error"),
            )
        except Deadline:
            return 0.0, "timeout", f"comparing took over {deadline:g} s"
        except Died as error:
            died = f"comparing killed the grader's process: {error}"
    return 0.0, "failed", died


_UNWORKED = re.compile(
    r"\d \d|[+*!^]|(?<=[\w)}]) ?-|/.*/|\) ?\( ?-?[\d.]|\d ?\( ?[\d.]|\) ?\d|\\sqrt"
    r"|\\(?:cdot|times|div|ast|binom|gcd|lcm|[bp]?mod|lfloor|lceil|operatorname|[lr]?vert|log|ln|lg|exp"
    r"|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])|[|]"
)
_EITHER_SIGN = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|[±∓]")
_PRIME = re.compile(r"'|\\prime(?![A-Za-z])")
_GOES_ON = re.compile(r"\\(?:[lcdv]?dots[bcimo]?)(?![A-Za-z])|…|\.\.\.")
# Numbers in other notations, and powers of 0.
_OTHERWISE = re.compile(r"(?<![\w.])0[xXoObB][\da-fA-F]|(?<=[\d.)]) ?_|(?<![\d.])0(?:\.0*+)? ?\^")
_INFINITE = re.compile(
    r"\\infty(?![A-Za-z])|(?<![A-Za-z\\])(?:nan|inf(?:inity)?|oo|zoo)(?![A-Za-z])", re.IGNORECASE
)
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


def refusal(gold: str, answer: str) -> str | None:
    """Return why an answer is not paid for a gold, both tidy; None if it may be."""
    if re.search(r"\\f?box(?:ed)?(?![A-Za-z])", answer):
        return "the box holds another box and more; it needs the answer alone"
    if _empty(answer):
        return "the box holds no letter or digit; it needs the answer"
    if _UNEVALUATED.search(answer) and not _UNEVALUATED.search(gold):
        return "the box holds a sum, product, integral or limit; it needs its value"
    if _PRIME.search(answer) and not _PRIME.search(gold):
        return "the box holds a prime; it needs the answer alone"
    if _GOES_ON.search(answer) and not _GOES_ON.search(gold):
        return "the box holds values that go on; it needs those that are asked for"
    if _EITHER_SIGN.search(answer) and not (_EITHER_SIGN.search(gold) or several(gold)):
        return "the box holds two values; it needs the one value"
    if several(gold) or gold.startswith("\\{") or _EITHER_SIGN.search(gold):
        return None
    if related := len(RELATION.findall(gold)):
        chain = related == 1 and len(RELATION.findall(answer)) > 1
        return "the box holds a chain of relations; it needs one" if chain else None
    if RELATION.search(answer) or several(answer):
        return "the box holds a relation or several values; it needs the one value"
    if _is_number(gold):
        return _why_no_number(answer)
    return None


_NOTHING_IN_WORDS = re.compile(
    r"\\(?:text|math(?:rm|bf|it|bb|cal|sf|tt)|boldsymbol|operatorname) ?\{\W*\}"
)


def _empty(text: str) -> bool:
    """Return whether a tidy text holds nothing but marks, and words that are empty."""
    return not re.search(r"[^\W_]|∅|∞", _NOTHING_IN_WORDS.sub("", text))


def _why_no_number(answer: str) -> str | None:
    """Return what an answer to a number is, if it holds words or unworked arithmetic."""
    if "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if _UNWORKED.search(answer):
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
    return None


def _lettered(
    text: str,
) -> bool:  # with a letter that stands for something: none of a command, a function or words
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
