"""What docs/grader.md says is what the grader does."""

import pytest

from turngym.envs.math import MathGrader
from turngym.tests.verify.grader.disagreements import REASONS

PAID = [
    (r"\frac{1}{2}", "0.50"),
    (r"\frac{37}{3}", "12.333333333333334"),
    (r"2\sqrt{2}", "2.828427"),
    (r"50\%", "50"),
    (r"50\%", "0.5"),
    (r"50\%", r"50 \text{ percent}"),
    ("42", r"42\%"),
    ("42", r"4200\%"),
    ("42", "x = 42"),
    ("x = 42", "42"),
    ("[1, 2]", r"x \in [1, 2]"),
    ("24", "48/2"),
    ("42", r"4.2 \times 10^1"),
    ("1234", "1,234"),
    ("1234", "1{,}234"),
    ("1234", r"1\,234"),
    (r"\frac{7}{2}", r"3\frac{1}{2}"),
    (r"\frac{7}{2}", "3 1/2"),
    ("1500", "1.5e3"),
    ("1500", r"1.5 \times 10^3"),
    ("[1, 2)", r"1 \le x < 2"),
    (r"x \in [1, 2)", r"1 \le x < 2"),
    (r"\{1, 2\}", "2, 1"),
    (r"\{1, 2\}", r"\{1, 2, 2\}"),
    ("1, 2", r"\{2, 1\}"),
    (r"[0, 1] \cup [2, 3]", r"[2, 3] \cup [0, 1]"),
    ("Monday", r"\text{monday}."),
    (r"\text{A,B}", "B,A"),
    ("-42", "−42"),
    (r"5 \text{ cm}", "5"),
    ("5", "5 cm"),
    (r"\$18", "18"),
    (r"30^\circ", "30"),
    ("12_5", "(12)_{5}"),
    ("3", r"\boxed{3}"),
]
UNPAID = [
    (r"\frac{1}{3}", "0.33"),
    ("42", "41.9999999"),
    ("42", "41.99999999999999"),
    (r"\frac{37}{3}", "12.333333333333333333333"),
    (r"2\sqrt{2}", "2.83"),
    ("42", "x > 0"),
    ("42", "7 = 42"),
    (r"\frac{1}{3}", r"1/3 \approx 0.33"),
    ("42", r"\pm 42"),
    ("42", "42, 43"),
    ("42", "40 + 2"),
    ("42", r"6 \cdot 7"),
    ("42", "43 - 1"),
    ("5040", "7!"),
    ("1", r"\log 10"),
    ("5050", r"\sum_{k=1}^{100} k"),
    ("x^2", r"\int 2x \, dx"),
    ("42", r"\text{about } 42"),
    ("x = 1", "x = 1 = 1"),
    ("1.5", "1,5"),
    ("(1, 2)", "(2, 1)"),
    ("[1, 2)", "[1, 2]"),
    ("1, 2, 2", "1, 2"),
    ("Monday", "yadnoM"),
    ("42", "٤٢"),
    (r"5 \text{ cm}", r"5 \text{ m}"),
    ("42", r"\boxed{42} \text{ or more}"),
]


@pytest.mark.parametrize(("gold", "answer"), PAID)
def test_what_is_paid(gold, answer):
    assert MathGrader().grade(completion=f"So \\boxed{{{answer}}}.", gold=gold).score == 1.0


@pytest.mark.parametrize(("gold", "answer"), UNPAID)
def test_what_is_not_paid(gold, answer):
    assert MathGrader().grade(completion=f"So \\boxed{{{answer}}}.", gold=gold).score == 0.0


@pytest.mark.parametrize(
    ("completion", "gold", "how"),
    [
        (r"\boxed{1} and \boxed{2}", "1, 2", "numeric"),
        (r"\fbox{3}", "3", "string"),
        ("#### 42", "42", "no-answer"),
        (r"<think>\boxed{3}", "3", "no-answer"),
        ("```\n\\boxed{3}\n```", "3", "no-answer"),
        (r"\boxed{}", "3", "no-answer"),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", "math-verify"),
        (r"\boxed{7 = 42}", "42", "failed"),
    ],
)
def test_where_an_answer_is_and_how_it_is_decided(completion, gold, how):
    grade = MathGrader().grade(completion=completion, gold=gold)
    assert grade.score == float(how in ("string", "numeric", "math-verify"))
    assert grade.how == how or {grade.how, how} == {"string", "numeric"}


def test_the_last_number_where_it_is_asked_for():
    assert MathGrader(extract="last").grade(completion="#### 42", gold="42").score == 1.0


@pytest.mark.parametrize("gold", ["", "{}", "?", "1/0", "2+", "=3", "{1"])
def test_golds_that_are_refused(gold):
    with pytest.raises(ValueError, match="the gold answer"):
        MathGrader().check_gold(gold)


def test_every_reason_lists_keys():
    assert all(keys and all(len(key) == 8 for key in keys) for keys in REASONS.values())
