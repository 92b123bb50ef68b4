import random

import pytest

from turngym.envs.math.grading.grader import MathGrader, MathVerdict, restates

PIECES = [
    *(
        "0",
        "1",
        "2",
        "3",
        "12",
        "1,234",
        "0.5",
        "1/0",
        "1:0",
        "2 3/0",
        "43_5",
        "4:30",
        "1e999",
        "٣",
    ),
    *(r"\frac{1}{0}", r"\frac123", r"\frac", r"\sqrt{2}", r"0.\overline{3}", "½", "²", "−", "√"),
    *("+", "-", "/", "*", "**", "^", "_", "=", "<", r"\le", ";", ",", ":", ".", " ", "%", "°", "'"),
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        r"\{",
        r"\}",
        r"\langle",
        "&",
        "\\\\",
        r"\boxed{",
        "|",
        "\ud800",
    ),
    *("x", "x =", "y =", "(x, y) =", "x_1 =", r"x \in", r"\text{ or }", r"\cup", r"\infty", r"\pm"),
    *("(B)", "(B) 5", r"\text{(B) } 1/0", "BD", "A, C", "Yes", r"\text{cm}", r"\text{", "_{10}"),
    *(
        r"\{3\}",
        r"(\{3\}, 4)",
        r"\{1, x\}",
        "(x, 1/0)",
        "(1, 2]",
        "((((((1, 2), 3), 4), 5), 6), 7)",
    ),
    *(
        r"\begin{pmatrix} \{3\} \\ 4 \end{pmatrix}",
        r"\frac{1}{0}\begin{pmatrix} 1 \\ 3 \end{pmatrix}",
    ),
    *(
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        r"\otimes",
        r"\div",
        r"\over",
        "sqrt(",
        "Rational(1, 0)",
    ),
]
TOO_LONG = "7" * 4400  # digits, more than Python converts


@pytest.fixture
def grader(monkeypatch):
    """A grader that takes all formulas for equal, without a child process."""
    monkeypatch.setattr(
        "turngym.envs.math.grading.grader._ask_math_verify",
        lambda gold, answer, deadline: MathVerdict(1.0, "math-verify"),
    )
    return MathGrader(shortcuts=False)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(B) 5", "1/0"),
        (r"\text{(B) } \frac{1}{2}", "1:0"),
        ("(B) 5", r"\frac{1}{0}"),
        (r"(\{3\}, 4)", "(3, 4)"),
        (r"(3, \{4\}, 5)", r"(\{3\}, 4, 5)"),
        (r"\begin{pmatrix} \{3\} \\ 4 \end{pmatrix}", r"\begin{pmatrix} 3 \\ 4 \end{pmatrix}"),
        ("5", f"{TOO_LONG}:2"),
        ("5", f"2:{TOO_LONG}"),
        ("(1, 2)", rf"\frac12{TOO_LONG}"),
    ],
)
def test_answers_that_cannot_be_read_are_wrong(grader, gold, answer):
    assert grader.grade(completion=rf"\boxed{{{answer}}}", gold=gold).score == 0.0


def test_a_set_of_one_number_is_right_in_another_spelling(grader):
    assert grader.grade(completion=r"\boxed{(\{3\}, 4.0)}", gold=r"(\{3\}, 4)").score == 1.0


@pytest.mark.parametrize("answer", [f"{TOO_LONG}:2", rf"2 \div {TOO_LONG}"])
def test_a_quotient_of_too_many_digits_restates_nothing(answer):
    assert not restates(answer, "5", frozenset({(2, 7)}))


def test_no_answer_raises(grader):
    rng = random.Random(5)
    for _ in range(800):
        gold = _mix_pieces(rng)
        answer = rng.choice([gold, _mix_pieces(rng), gold + _mix_pieces(rng)])
        grade = grader.grade(completion=rf"\boxed{{{answer}}}", gold=gold)
        assert grade.score in (0.0, 1.0)
        grader.same(gold, answer)
        restates(answer, gold, frozenset({(1, 2)}))


def _mix_pieces(rng):
    pieces = rng.choices(PIECES, k=rng.randint(1, 4))
    text = rng.choice(["", " ", ", "]).join(pieces)
    return rng.choice([text, text, f"({text})", rf"\{{{text}\}}"])
