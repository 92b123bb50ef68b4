r"""Grades the answer of a completion against a gold answer, exactly or with math-verify.

`MathGrader.grade` tries one rule after the other, the cheapest first:

1. `try_quick_verdict`: gold and box are short plain numbers.
2. The same spelling as the gold.
3. A gold of plain numbers is compared exactly, and so is one of words or choices.
4. `find_refusal`: an answer that hedges or only restates the question is wrong. If the gold is one
   value, a box with several values or a relation is refused; if it is a number, so is arithmetic
   that was not worked out.
5. Of two collections the plain numbers are compared exactly, and what remains as below.
6. math-verify compares formulas, in a child process that can be killed. The agent's text is never
   evaluated in this process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....tools.subprocesses.process import Deadline, Died, Pool, StartFailure
from ...outcomes import EnvFailure
from ...rewards import Grade as Grade
from .boxed_answer import EXTRACTIONS, Extract
from .names import strip_names
from .notation import (
    RELATION,
    adapt_to_math_verify,
    normalise_latex,
    normalise_words,
    read_choice,
    read_choices,
    read_number_in_base,
    read_words,
    split_choice,
    split_unit,
    unwrap,
    write_as_intervals,
)
from .numbers import (
    Number,
    read_normalised_number,
    read_number,
    read_quotient,
    read_ratio,
    same_number,
    units_differ,
)
from .signs import has_algebra_operator, use_plain_operators
from .values import (
    ElementTexts,
    Value,
    comparison_rule,
    possible_values,
    read_value,
    same_value,
    split_collection,
)

MAX_ANSWER = 5000  # characters of an answer that is read


class GraderFailure(EnvFailure):
    """The grader itself could not run: no fault of the agent's."""


class MathVerdict(NamedTuple):
    """The result of comparing an answer with the gold.

    Attributes:
        score: 1.0 if they mean the same, else 0.0.
        how: The rule that decided, as in `MathGrader.grade`.
        error: Why the answer was refused or could not be compared.
    """

    score: float
    how: str
    error: str | None = None


def _refuse(reason: str) -> MathVerdict:
    return MathVerdict(0.0, "failed", reason)


class MathGrader:
    """Grades math answers, from any thread and after a fork.

    Args:
        deadline: Timeout of math-verify in seconds, from when it gets an answer; an answer that
            takes longer scores 0.
        shortcuts: Whether an answer that is spelled like the gold is right without being read.
        extract: How the answer is found in a completion: `box`, the last box behind the reasoning;
            `last`, without a box the last formula or number; `lenient`, without a box what a
            sentence states or a bare last line; or a function that returns the answer, or None.

    Raises:
        ValueError: The deadline is not above 0, or `extract` is an unknown name.
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
        self.deadline = deadline
        self.shortcuts = shortcuts
        self._extract = EXTRACTIONS[extract] if isinstance(extract, str) else extract
        # All named extractions prefer a box, so they agree with the quick verdict.
        self._allows_quick_verdict = isinstance(extract, str)

    def check_gold(self, gold: str) -> None:
        """Raise ValueError if `gold` has no value that an answer could be compared with."""
        try:
            is_number = read_number(gold) is not None
        except ZeroDivisionError:
            raise ValueError(f"the gold answer {gold!r} divides by zero") from None
        if is_number:
            return
        fault = _find_gold_fault(normalise_latex(gold))
        if fault is not None:
            raise ValueError(f"the gold answer {gold!r} {fault}")

    def grade(self, *, completion: str, gold: str) -> Grade:
        r"""Grade the answer in a completion.

        Args:
            completion: The whole text, with its reasoning: `"<think>...</think>It is \boxed{4}."`.
            gold: The right answer, in LaTeX or plain text.

        Returns:
            The grade. Its `how` says what decided: `no-answer`, `string`, `numeric`,
            `math-verify`, `timeout` (of math-verify) or `failed` (the answer was refused, or could
            not be compared; `error` says why).

        Raises:
            GraderFailure: math-verify is needed and cannot run.
        """
        if self._allows_quick_verdict:
            quick = try_quick_verdict(completion, gold)
            if quick is not None:
                quick_answer, is_right, is_spelled_like_gold = quick
                how = "string" if is_spelled_like_gold and self.shortcuts else "numeric"
                return Grade(1.0 if is_right else 0.0, quick_answer, how)

        answer = self._extract(completion)
        if answer is None:
            return Grade(0.0, None, "no-answer")
        verdict = self._compare(gold, answer)
        return Grade(verdict.score, answer, verdict.how, verdict.error)

    def same(self, first: str, second: str) -> bool:
        """Return whether two extracted answers mean the same; the order does not matter.

        They do if their texts are equal, or if one of them, taken as the gold, accepts the other.
        Two plain numbers are compared exactly, as fast as `grade` does it.

        Raises:
            GraderFailure: math-verify is needed and cannot run.
        """
        if first == second:
            return True
        try:
            first_number = read_number(first)
            second_number = read_number(second)
        except ZeroDivisionError:
            return False
        if first_number is not None and second_number is not None:
            if units_differ(first_number, second_number):
                return False
            # `same_number` is not symmetric: it allows for rounding only in its second number.
            if same_number(first_number, second_number):
                return True
            return same_number(second_number, first_number)
        if self._compare(gold=first, answer=second).score > 0:
            return True
        return self._compare(gold=second, answer=first).score > 0

    @staticmethod
    def close() -> None:
        """End the idle processes of math-verify.

        All graders share them, and start new ones when they need them again.
        """
        _workers.close()

    def _compare(self, gold: str, answer: str) -> MathVerdict:
        """Return the verdict on an extracted answer: the first rule that applies decides."""
        if len(answer) > MAX_ANSWER:
            return _refuse(
                f"the answer has {len(answer)} characters; at most {MAX_ANSWER} are read"
            )
        if self.shortcuts:
            gold_spelling = _simplify_spelling(gold)
            if gold_spelling and gold_spelling == _simplify_spelling(answer):
                return MathVerdict(1.0, "string")
        gold, answer = prepare_texts(gold, answer)

        # Golds that need no math-verify: plain numbers, words, choices.
        try:
            verdict = _compare_exactly(gold, answer)
            if verdict is None:
                verdict = _compare_words(gold, answer)
        except ZeroDivisionError:
            return _refuse("the answer divides by zero")
        if verdict is not None:
            return verdict

        refusal = find_refusal(gold, answer)
        if refusal is not None:
            return _refuse(refusal)

        # The plain numbers of two collections may decide; if not, math-verify compares the
        # formulas.
        comparison = _compare_numbers_of_collections(gold, answer)
        if comparison is None:  # to be compared as a whole
            return self._compare_formulas(gold, answer, pairs=[(gold, answer)])
        if isinstance(comparison, MathVerdict):
            return comparison
        for gold_formula, answer_formula in comparison.pairs:
            refusal = find_refusal(gold_formula, answer_formula)
            if refusal is not None:
                return _refuse(refusal)
        return self._compare_formulas(comparison.gold, comparison.answer, comparison.pairs)

    def _compare_formulas(
        self, gold: str, answer: str, pairs: Sequence[tuple[str, str]]
    ) -> MathVerdict:
        """Return math-verify's verdict on two texts, but refuse answers that it misreads as right.

        Args:
            gold: The gold: one formula or a collection of formulas.
            answer: The answer, in the same form.
            pairs: Each formula of the gold with the answer's formula for it; empty if it is not
                known which belong together.
        """
        adapted_gold, adapted_answer = _write_for_math_verify(gold, answer)
        verdict = _ask_math_verify(adapted_gold, adapted_answer, self.deadline)
        if not verdict.score:
            return verdict
        for gold_formula, answer_formula in pairs:
            misreading = _find_misreading(gold_formula, answer_formula)
            if misreading is not None:
                return _refuse(misreading)
        return verdict


# --- short plain numbers, the case of most episodes

_SHORT_NUMBER = (
    r"-?(?:[0-9]{1,14}|[0-9]{1,3}(?:,[0-9]{3}){1,3}|[0-9]{1,7}\.[0-9]{1,7}"
    r"|[0-9]{1,14}/[1-9][0-9]{0,13}|\\[dt]?frac\{[0-9]{1,14}\}\{[1-9][0-9]{0,13}\})"
)
_match_short_number = re.compile(_SHORT_NUMBER).fullmatch
_match_box_of_short_number = re.compile(rf"\\boxed\{{({_SHORT_NUMBER})\}}").match


def try_quick_verdict(completion: str, gold: str) -> tuple[str, bool, bool] | None:
    r"""Return the verdict if the box and the gold are short plain numbers.

    Returns:
        The answer, whether it is right, and whether it is spelled like the gold: a plain tuple,
        because a record would take a tenth of the time of the whole grade. None if the gold or the
        box is something else, or if the answer is harder to find: the reply has several boxes, an
        open thought or a code block.
    """
    reply = completion.rpartition("</think>")[2]
    box_start = reply.find("box") - 1  # the backslash of `\boxed`
    if box_start < 0 or "<think>" in reply or "```" in reply:
        return None
    box = _match_box_of_short_number(reply, box_start)
    if box is None or reply.find("box", box.end()) >= 0:
        return None
    answer = box[1]
    if answer == gold:
        return answer, True, True
    if _match_short_number(gold) is None:
        return None
    numerator, denominator = _read_short_number(answer)
    gold_numerator, gold_denominator = _read_short_number(gold)
    is_right = numerator * gold_denominator == gold_numerator * denominator
    return answer, is_right, False


_SHORT_NUMBER_AS_RATIO = str.maketrans("}", "/", "\\dtfrac{,")


def _read_short_number(number: str) -> tuple[int, int]:
    r"""Return numerator and denominator of a short plain number.

    `"-1,234" -> (-1234, 1)`, `"2.50" -> (250, 100)`, `"\frac{1}{2}" -> (1, 2)`.
    """
    ratio = number.translate(_SHORT_NUMBER_AS_RATIO)  # \frac{1}{2} -> 1/2/, and 1,234 -> 1234
    dividend, _, divisor = ratio.partition("/")
    whole, _, decimals = dividend.partition(".")
    denominator = int(divisor.rstrip("/") or 1)
    return int(whole + decimals), 10 ** len(decimals) * denominator


# --- preparation


def prepare_texts(gold: str, answer: str) -> tuple[str, str]:
    r"""Return gold and answer in one spelling, without wrappers and names around their values.

    `("\text{5}", "x = 5") -> ("5", "5")`. Inequalities for one letter become intervals:
    `("[1, 2)", "1 \leq x < 2") -> ("[1, 2)", "[1, 2)")`.
    """
    gold = _keep_first_of_equal_numbers(unwrap(normalise_latex(gold)))
    answer = unwrap(normalise_latex(answer))
    # `6 \otimes 7` is a product, unless the gold itself is about such an operator.
    if not has_algebra_operator(gold):
        answer = " ".join(use_plain_operators(answer).split())
    aligned_gold = _align_constants(gold, other=answer)
    aligned_answer = _align_constants(answer, other=gold)
    gold, answer = strip_names(aligned_gold, aligned_answer)
    return write_as_intervals(gold, answer)


_EQUALS_SIGN = re.compile(r" ?(?:=|\\approx(?![A-Za-z])) ?")


def _keep_first_of_equal_numbers(gold: str) -> str:
    r"""Return the first number of a chain of equal numbers: `"2/3 \approx 0.67" -> "2/3"`.

    Other golds are returned unchanged.
    """
    terms = _EQUALS_SIGN.split(gold)
    if len(terms) > 1 and all(map(_is_number, terms)):
        return terms[0]
    return gold


_LONE_UPPER_I = re.compile(r"(?<![A-Za-z\\])I(?![A-Za-z])")
_LONE_UPPER_E = re.compile(r"(?<![A-Za-z\\])E(?![A-Za-z])")
_J_BEHIND_DIGIT = re.compile(r"(?<=\d) ?j(?![A-Za-z])")
_LONE_I = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
_LONE_E = re.compile(r"(?<![A-Za-z\\])e(?![A-Za-z])")


def _align_constants(text: str, other: str) -> str:
    """Return `text` with a program's `I`, `j` and `E` as `i` and `e`, if `other` has `i` or `e`.

    `("2 + 3I", other="2 + 3 i") -> "2 + 3 i"`. A capital letter that `other` has as well means
    something else, and does not change.
    """
    # Most texts have neither letter; `in` is faster than the regex.
    if "i" in other and _LONE_I.search(other):
        if not _LONE_UPPER_I.search(other):
            text = _LONE_UPPER_I.sub(" i", text)
        text = _J_BEHIND_DIGIT.sub(" i", text)
    if "e" in other and "E" in text and _LONE_E.search(other) and not _LONE_UPPER_E.search(other):
        text = _LONE_UPPER_E.sub("e", text)
    return text


def restates(answer: str, gold: str, quotients: frozenset[tuple[int, int]]) -> bool:
    """Return whether an answer only repeats a quotient of the problem that is not the gold.

    Spelling, signs, units, brackets and a name in front do not matter.

    Args:
        answer: An extracted answer.
        gold: The gold answer.
        quotients: The quotients in the problem's text, as (dividend, divisor) without signs.
    """
    quotient = _read_quotient_of_answer(answer)
    if quotient is None or quotient not in quotients:
        return False
    return quotient != _read_quotient_of_answer(gold)


def _read_quotient_of_answer(text: str) -> tuple[int, int] | None:
    _, prepared_text = prepare_texts("", text)
    return read_quotient(prepared_text)


_LONE_TEXT = re.compile(r"\\(?:text|mathrm)\{([^{}]*)\}")
_BLANK_BESIDE_SIGN = re.compile(r"(?<!\w) | (?!\w)")


def _simplify_spelling(answer: str) -> str:
    r"""Return a normalised answer without `\text{}`, a full stop, and blanks between no words.

    `"(1, \text{ two parts})." -> "(1,two parts)"`. Texts that become equal mean the same.
    """
    text = _LONE_TEXT.sub(r"\1", normalise_latex(answer)).strip().rstrip(".")
    return _BLANK_BESIDE_SIGN.sub("", text)


_BOX_COMMAND = re.compile(r"\\f?box(?:ed)?(?![A-Za-z])")
_OPERATOR_AT_END = re.compile(r"^[*/=^]|[-+*/=^_\\]$")


def _find_gold_fault(gold: str) -> str | None:
    """Return why a normalised gold that is no plain number has no value; None if it has one.

    The fault continues a sentence about the gold: "is empty".
    """
    if not gold:
        return "is empty"
    content = unwrap(gold)
    if not re.search(r"\w", gold) or _is_empty(content):
        return "has no letter or digit"
    if _BOX_COMMAND.search(content):
        return "is a whole solution: give what is in its box alone"
    if _OPERATOR_AT_END.search(gold):
        return "begins or ends with an operator"
    if not _has_balanced_braces(gold):
        return "has unbalanced braces"
    return None


def _has_balanced_braces(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


# --- plain numbers and words

_NO_PLAIN_NUMBER = (
    "the box holds no plain number; it needs the number, worked out, and at most its unit"
)
_NO_PLAIN_ELEMENTS = "the box holds elements that are no plain numbers; it needs them worked out"


def _compare_exactly(gold: str, answer: str) -> MathVerdict | None:
    """Return the verdict on an answer to a gold that has only plain numbers in it.

    The answer must have only plain numbers, too. So arithmetic that was not worked out is wrong in
    every notation.

    Returns:
        The verdict; None if the gold is anything else, or only math-verify can decide.

    Raises:
        ZeroDivisionError: Gold or answer have a quotient by zero.
    """
    gold_values = possible_values(gold)
    if not gold_values:
        return None
    if isinstance(gold_values[0], Number):
        return _compare_with_number(gold_values[0], gold, answer)
    answer_values = possible_values(_expand_plus_minus(answer))
    if not answer_values:
        return _refuse(find_refusal(gold, answer) or _NO_PLAIN_ELEMENTS)

    # A text has two possible values if a comma in it is ambiguous; any pair of them may be equal.
    is_undecided = False
    for gold_value in gold_values:
        for answer_value in answer_values:
            same = same_value(gold_value, answer_value)
            if same:
                return MathVerdict(1.0, "numeric")
            if same is None:
                is_undecided = True
    return None if is_undecided else MathVerdict(0.0, "numeric")


def _compare_with_number(gold_number: Number, gold: str, answer: str) -> MathVerdict:
    """Return the verdict on an answer to a gold that is one plain number.

    Args:
        gold_number: The number.
        gold: The gold as it is written.
        answer: The answer as it is written.
    """
    answer_number = _read_number_in_any_notation(answer)
    if answer_number is None:
        return _refuse(find_refusal(gold, answer) or _NO_PLAIN_NUMBER)
    if units_differ(gold_number, answer_number):
        return _refuse("the box has another unit")
    is_right = same_number(gold_number, answer_number)
    return MathVerdict(1.0 if is_right else 0.0, "numeric")


def _read_number_in_any_notation(answer: str) -> Number | None:
    """Return the number that an answer is: a plain number, a ratio such as `3:5`, or `12_{10}`."""
    number = read_normalised_number(answer)
    if number is not None:
        return number
    ratio = read_ratio(answer)
    if ratio is not None:
        return ratio
    number_in_base = read_number_in_base(answer)
    if number_in_base is None:
        return None
    value, base = number_in_base
    return Number(value) if base == 10 else None


_LIST_WITH_PLUS_MINUS = re.compile(
    r"(?P<before>(?:.*, ?)?)(?:\\pm|\\mp) ?(?P<value>[^,]+)(?P<behind>(?:,.*)?)", re.DOTALL
)


def _expand_plus_minus(text: str) -> str:
    r"""Return a list with both numbers in place of a `\pm`: `"1, \pm 2" -> "1, 2, -2"`.

    Other texts are returned unchanged.
    """
    match = _LIST_WITH_PLUS_MINUS.fullmatch(text)
    if match is None or read_normalised_number(match["value"]) is None:
        return text
    return f"{match['before']}{match['value']}, -{match['value']}{match['behind']}"


def _compare_words(gold: str, answer: str) -> MathVerdict | None:
    """Return the verdict on a gold of words or choices, or a number with a base; None for others.

    Raises:
        ZeroDivisionError: The answer to a choice with a number is a quotient by zero.
    """
    # Not for math-verify: as a formula a word is a product of letters, equal to its anagrams.
    gold_words = read_words(gold)
    if gold_words is not None:
        is_right = gold_words == normalise_words(answer)
        return MathVerdict(1.0 if is_right else 0.0, "string")

    # `(B) 14` is answered by `B` and by `14`.
    gold_choice, gold_content = split_choice(gold)
    if gold_choice is not None and read_choice(answer) == gold_choice:
        return MathVerdict(1.0, "string")
    if _is_number(gold_content):
        return _compare_exactly(gold_content, answer)
    gold_choices = read_choices(gold)
    if gold_choices is not None and read_choices(answer) == gold_choices:
        return MathVerdict(1.0, "string")

    gold_in_base = read_number_in_base(gold)
    if gold_in_base is None:
        return None
    answer_in_base = read_number_in_base(answer)
    if answer_in_base is None:  # the answer may leave out the base
        _, base = gold_in_base
        answer_in_base = read_number_in_base(f"{answer}_{base}")
    is_right = answer_in_base == gold_in_base
    return MathVerdict(1.0 if is_right else 0.0, "numeric")


def _is_number(text: str) -> bool:
    try:
        return read_number(text) is not None
    except ZeroDivisionError:
        return False


# --- collections of plain numbers and formulas


class RemainingFormulas(NamedTuple):
    """The formulas of two collections whose plain numbers are the same.

    Attributes:
        gold: The gold's formulas: a collection, or the one formula.
        answer: The answer's.
        pairs: The formulas of gold and answer that belong together; empty if that is not known.
    """

    gold: str
    answer: str
    pairs: tuple[tuple[str, str], ...] = ()


def _compare_numbers_of_collections(
    gold: str, answer: str
) -> MathVerdict | RemainingFormulas | None:
    r"""Compare the plain numbers of two collections exactly; the formulas in them remain.

    `("(1, \sqrt{2})", "(1, x)")` have the formulas `\sqrt{2}` and `x` to be compared.

    Returns:
        The verdict if the numbers decide, else the formulas that remain. None if the two have to
        be compared as a whole: if one is no collection, the gold has no plain number in it, or
        their kinds differ and may still mean the same.
    """
    gold_texts = split_collection(gold)
    answer_texts = split_collection(answer)
    if gold_texts is None or answer_texts is None:
        return None
    gold_texts = _flatten_matrix(gold_texts)
    answer_texts = _flatten_matrix(answer_texts)
    gold_values = [_read_element(text) for text in gold_texts.elements]
    if all(value is None for value in gold_values):
        return None
    rule = comparison_rule(
        gold_kind=gold_texts.kind,
        answer_kind=answer_texts.kind,
        gold_count=len(gold_texts.elements),
        answer_count=len(answer_texts.elements),
    )
    if rule == "different":
        return _refuse("the box holds another kind of collection")
    if rule == "tuple":
        return _compare_numbers_of_tuples(gold_texts, answer_texts, gold_values)
    if rule in ("set", "list"):
        return _compare_numbers_of_lists(gold_texts, answer_texts, gold_values)
    return None  # unions, and kinds that may mean the same


def _read_element(text: str) -> Value | None:
    """Return the value of an element of plain numbers; None for a formula, and for `1/0`."""
    try:
        return read_value(text)
    except ZeroDivisionError:
        return None


def _flatten_matrix(collection: ElementTexts) -> ElementTexts:
    """Return a matrix as one tuple of its cells; other collections as they are.

    The new kind has the length of each row, so that matrices of two shapes are of different kinds:
    `("matrix", ("1 & x", "3 & 4")) -> ("matrix 2x2", ("1", "x", "3", "4"))`.
    """
    if collection.kind != "matrix":
        return collection
    cells: list[str] = []
    row_lengths = []
    for row in collection.elements:
        row_cells = row.split("&")
        row_lengths.append(str(len(row_cells)))
        cells += [cell.strip() for cell in row_cells]
    return ElementTexts(f"matrix {'x'.join(row_lengths)}", tuple(cells))


def _compare_numbers_of_tuples(
    gold: ElementTexts, answer: ElementTexts, gold_values: Sequence[Value | None]
) -> MathVerdict | RemainingFormulas:
    """Compare the plain numbers of two tuples, each with the element at the same place.

    Args:
        gold: The gold's elements.
        answer: The answer's elements.
        gold_values: The values of the gold's elements, None for a formula; not all are formulas.

    Returns:
        The verdict if the answer is wrong already, else the formulas that remain.
    """
    if len(gold.elements) != len(answer.elements):
        return _refuse("the box holds another number of values")
    formula_pairs = []
    for gold_value, gold_text, answer_text in zip(
        gold_values, gold.elements, answer.elements, strict=True
    ):
        if gold_value is None:
            formula_pairs.append((gold_text, answer_text))
            continue
        answer_value = _read_element(answer_text)
        if answer_value is None:
            return _refuse(_NO_PLAIN_ELEMENTS)
        if not same_value(gold_value, answer_value):
            return MathVerdict(0.0, "numeric")

    if not formula_pairs:
        return _compare_sets_of_one(gold, answer)
    if len(formula_pairs) == 1:
        gold_formula, answer_formula = formula_pairs[0]
        return RemainingFormulas(gold_formula, answer_formula, tuple(formula_pairs))
    gold_formulas, answer_formulas = zip(*formula_pairs, strict=True)
    gold_tuple = f"({', '.join(gold_formulas)})"
    answer_tuple = f"({', '.join(answer_formulas)})"
    return RemainingFormulas(gold_tuple, answer_tuple, tuple(formula_pairs))


def _compare_sets_of_one(gold: ElementTexts, answer: ElementTexts) -> MathVerdict:
    r"""Return the verdict on two tuples whose elements all have the same numbers.

    A set of one number, such as `\{3\}`, was read as that number: `(\{3\}, 4)` is not `(3, 4)`.
    """
    for gold_text, answer_text in zip(gold.elements, answer.elements, strict=True):
        if gold_text.startswith("\\{") != answer_text.startswith("\\{"):
            return _refuse(
                "the box holds a set in place of a number, or a number in place of a set"
            )
    return MathVerdict(1.0, "numeric")


def _compare_numbers_of_lists(
    gold: ElementTexts, answer: ElementTexts, gold_values: Sequence[Value | None]
) -> MathVerdict | RemainingFormulas:
    """Compare the plain numbers of two lists or sets, in any order.

    The answer must have each number of the gold. Its other elements have to be the formulas.

    Args:
        gold: The gold's elements.
        answer: The answer's elements.
        gold_values: The values of the gold's elements, None for a formula; not all are formulas.

    Returns:
        The verdict if the answer is wrong already, else the formulas that remain.
    """
    answer_formulas = list(answer.elements)
    answer_values = [_read_element(text) for text in answer.elements]
    gold_formulas = []
    for gold_value, gold_text in zip(gold_values, gold.elements, strict=True):
        if gold_value is None:
            gold_formulas.append(gold_text)
            continue
        index = _find_same_value(gold_value, answer_values)
        if index is None:
            return _refuse("the box does not hold one of the numbers, worked out")
        del answer_formulas[index]
        del answer_values[index]

    counts_differ = len(gold_formulas) != len(answer_formulas)
    may_repeat_elements = gold.kind == "{}"
    if not answer_formulas or (counts_differ and not may_repeat_elements):
        return _refuse("the box holds another number of values")
    if len(gold_formulas) == len(answer_formulas) == 1:
        pair = (gold_formulas[0], answer_formulas[0])
        return RemainingFormulas(gold_formulas[0], answer_formulas[0], pairs=(pair,))
    gold_set = f"\\{{{', '.join(gold_formulas)}\\}}"
    answer_set = f"\\{{{', '.join(answer_formulas)}\\}}"
    return RemainingFormulas(gold_set, answer_set)


def _find_same_value(gold_value: Value, answer_values: Sequence[Value | None]) -> int | None:
    """Return the index of the first answer value that is the same as the gold's, or None."""
    for index, answer_value in enumerate(answer_values):
        if answer_value is not None and same_value(gold_value, answer_value):
            return index
    return None


# --- math-verify

_workers = Pool(Path(__file__).with_name("worker.py"))


def ask(workers: Pool, needs: str, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:
    """Return the reply of a worker process to a request.

    Args:
        workers: The pool of processes.
        needs: The package that the workers import, for the message if none can start.
        request: The request, as the workers' script reads it.
        deadline: Timeout in seconds, from when the worker gets the request.

    Raises:
        GraderFailure: No worker can start.
        Deadline: The worker exceeded the timeout, and was killed.
        Died: The worker died of the request.
    """
    try:
        return workers.ask(request, deadline)
    except StartFailure as error:
        raise GraderFailure(
            f"the grader's process cannot start: {error}; check that {needs} imports"
        ) from error


def _ask_math_verify(gold: str, answer: str, deadline: float) -> MathVerdict:
    """Return whether math-verify takes two formulas for equal.

    Args:
        gold: The gold's formula.
        answer: The answer's formula.
        deadline: Timeout in seconds.
    """
    request = {"gold": gold, "answer": answer, "seconds": deadline}
    error_message = ""
    # A worker that dies once may be the machine's fault; if it dies twice, the answer killed it.
    for _ in range(2):
        try:
            reply = ask(_workers, "math-verify", request, deadline)
        except Deadline:
            return MathVerdict(0.0, "timeout", f"comparing took over {deadline:g} s")
        except Died as error:
            error_message = f"comparing killed the grader's process: {error}"
            continue
        how = "failed" if "error" in reply else "math-verify"
        return MathVerdict(float(reply["equal"]), how, reply.get("error"))
    return _refuse(error_message)


_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


def _write_for_math_verify(gold: str, answer: str) -> tuple[str, str]:
    r"""Return both formulas without units and degree signs, which math-verify misreads.

    It takes the letters of a unit for a product, and `^\circ` for a power. So
    `("5 \text{ cm}", "5") -> ("5", "5")`. Two different units are not removed.
    """
    # One may separate its equations by semicolons, and the other by commas.
    are_lists_of_equations = "=" in gold and "=" in answer
    if are_lists_of_equations and (";" in gold) != (";" in answer):
        gold = gold.replace(";", ",")
        answer = answer.replace(";", ",")

    gold, gold_unit = split_unit(adapt_to_math_verify(gold))
    answer, answer_unit = split_unit(adapt_to_math_verify(answer))
    if gold_unit and answer_unit and gold_unit != answer_unit:
        gold = f"{gold} \\text{{{gold_unit}}}"
        answer = f"{answer} \\text{{{answer_unit}}}"

    # `\sin 30°` is not `\sin 30`, but elsewhere `30°` may be answered by `30`.
    has_angle_function = _ANGLE_FUNCTION.search(gold + answer) is not None
    degree_sign = "^{\\circ}" if has_angle_function else ""
    return gold.replace("°", degree_sign), answer.replace("°", degree_sign)


# --- refusals

_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])|[±∓]")
_PRIME = re.compile(r"'|\\prime(?![A-Za-z])")
_DOTS = re.compile(r"\\(?:[lcdv]?dots[bcimo]?)(?![A-Za-z])|…|\.\.\.")
# Sums, products, integrals, limits, extrema, determinants and derivatives.
_UNEVALUATED_OPERATOR = re.compile(
    r"[∫∑∏]"
    r"|(?<![A-Za-z])\\?(?:i*int|oint|sum|prod|coprod|lim|limsup|liminf)(?![A-Za-z])"
    r"|\\big(?:cup|cap)(?![A-Za-z])"
    r"|\\operatorname\*? ?\{ ?(?:lim|int|sum|prod|max|min|sup|inf)"
    r"|\\(?:max|min|sup|inf|det)(?![A-Za-z])"
    r"|\\frac ?\{ ?(?:d|\\partial|\\mathrm ?\{ ?d ?\})(?: ?\^ ?\{?\w\}?)? ?\}"
    r" ?\{ ?(?:d|\\partial|\\mathrm)"
)


def find_refusal(gold: str, answer: str) -> str | None:
    """Return why an answer cannot be right, whatever its value; None if it may be right.

    An answer is refused if it gives several values or relations for a gold of one, or leaves the
    calculation to the grader. Notation that the gold itself has is never refused.

    Args:
        gold: The gold, prepared by `prepare_texts`.
        answer: The answer, prepared in the same way.
    """
    if _BOX_COMMAND.search(answer):
        return "the box holds another box and more; it needs the answer alone"
    if _is_empty(answer):
        return "the box holds no letter or digit; it needs the answer"
    if _UNEVALUATED_OPERATOR.search(answer) and not _UNEVALUATED_OPERATOR.search(gold):
        return "the box holds a sum, product, integral or limit; it needs its value"
    if _PRIME.search(answer) and not _PRIME.search(gold):
        return "the box holds a prime; it needs the answer alone"
    if _DOTS.search(answer) and not _DOTS.search(gold):
        return "the box holds values that go on; it needs those that are asked for"

    gold_has_several = has_several_values(gold) or _PLUS_MINUS.search(gold) is not None
    if _PLUS_MINUS.search(answer) and not gold_has_several:
        return "the box holds two values; it needs the one value"
    if gold_has_several or gold.startswith("\\{"):
        return None

    # From here on the gold is one relation or one value.
    gold_relations = len(RELATION.findall(gold))
    if gold_relations:
        answer_relations = len(RELATION.findall(answer))
        if gold_relations == 1 and answer_relations > 1:
            return "the box holds a chain of relations; it needs one"
        return None
    if RELATION.search(answer) or has_several_values(answer):
        return "the box holds a relation or several values; it needs the one value"
    if _is_number(gold):
        return _find_fault_of_number(answer)
    return None


_GROUPING_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def has_several_values(text: str) -> bool:
    """Return whether there is a comma outside all brackets, or a line break outside a matrix."""
    if "\\\\" in text and "\\begin" not in text:
        return True
    depth = 0
    for mark in re.findall(r"[()\[\]{},]", _GROUPING_COMMA.sub("", text)):
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif depth == 0:
            return True
    return False


_EMPTY_TEXT_COMMAND = re.compile(
    r"\\(?:text|math(?:rm|bf|it|bb|cal|sf|tt)|boldsymbol|operatorname) ?\{\W*\}"
)


def _is_empty(text: str) -> bool:
    r"""Return whether a text has no letter or digit, except in names of empty commands.

    `\text{ }.` and `--` are empty.
    """
    return not re.search(r"[^\W_]|∅|∞", _EMPTY_TEXT_COMMAND.sub("", text))


# Arithmetic: `3 4`, an operator, `2(3)`, a root or function, a vertical bar.
_UNWORKED_ARITHMETIC = re.compile(
    r"\d \d|[+*!^]|(?<=[\w)}]) ?-|/.*/|\) ?\( ?-?[\d.]|\d ?\( ?[\d.]|\) ?\d|\\sqrt"
    r"|\\(?:cdot|times|div|ast|binom|gcd|lcm|[bp]?mod|lfloor|lceil|operatorname|[lr]?vert"
    r"|log|ln|lg|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])|[|]"
)


def _find_fault_of_number(answer: str) -> str | None:
    """Return why an answer cannot be right if the gold is a plain number; None if it may be.

    Words and arithmetic that was not worked out are refused.
    """
    if "\\text" in answer:
        return "the box holds a number and words; it needs the number and at most its unit"
    if _UNWORKED_ARITHMETIC.search(answer):
        return "the box holds unworked arithmetic; it needs the number"
    return None


# math-verify takes `0x2A` for a product with 0, drops the base of `10_2`, and takes 0^0 for 1.
_MISREAD_NUMBER = re.compile(
    r"(?<![\w.])0[xXoObB][\da-fA-F]|(?<=[\d.)]) ?_|(?<![\d.])0(?:\.0*+)? ?\^"
)
_INFINITE_OR_NAN = re.compile(
    r"\\infty(?![A-Za-z])|(?<![A-Za-z\\])(?:nan|inf(?:inity)?|oo|zoo)(?![A-Za-z])", re.IGNORECASE
)
_TEXT = re.compile(r"\\(?:text|mathrm) ?\{[^{}]*\}")


def _find_misreading(gold: str, answer: str) -> str | None:
    """Return why an answer that math-verify accepted is wrong; None if it is right.

    Args:
        gold: The gold's formula.
        answer: The answer's formula.
    """
    if has_several_values(gold) or gold.startswith("\\{") or RELATION.search(gold):
        return None
    if _MISREAD_NUMBER.search(answer) and not _MISREAD_NUMBER.search(gold):
        return "the box holds a number in another notation or a power of 0; it needs the value"
    if _INFINITE_OR_NAN.search(answer) and "," not in answer and not _INFINITE_OR_NAN.search(gold):
        return "the box holds no finite value; it needs the value"
    is_only_text = not _TEXT.sub("", gold).strip()  # `\text{(B)}` may be answered by `B`
    if not is_only_text and _has_variable(answer) and not _has_variable(gold):
        return "the box holds a letter; it needs the value"
    return None


# Letters that stand for a value, while other commands do not: `\alpha`, `\varphi`.
_GREEK_NAME = (
    r"(?:[a-z]*(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho"
    r"|sigma|tau|upsilon|phi|chi|psi|omega)|ell|hbar)(?![A-Za-z])"
)
_TEXT_COMMAND_OR_FUNCTION = re.compile(
    rf"{_TEXT.pattern}"
    r"|\\(?:begin|end) ?\{[^{}]*\}(?: ?\{[clr| ]*\})?"
    rf"|\\(?!{_GREEK_NAME})[A-Za-z]+"
    r"|(?<![A-Za-z])(?:pi|sqrt|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp)(?![A-Za-z])",
    re.IGNORECASE,
)


def _has_variable(text: str) -> bool:
    """Return whether a text has a letter outside of words, commands and names of functions."""
    return re.search(r"[A-Za-z]", _TEXT_COMMAND_OR_FUNCTION.sub(" ", text)) is not None
