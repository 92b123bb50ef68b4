r"""What is paid that was not earned: other notations, values that are none; and what is paid as its kin are."""

import time

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.math.grading.grader import MathVerdict

GRADER = MathGrader(deadline=60)


def score(gold, answer):
    return GRADER.grade(completion=f"\\boxed{{{answer}}}", gold=gold).score


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (
            "0",
            [
                "0x2A",
                "0X2a",
                "-0x0",
                "0b101",
                "0o17",
                "0x",
                "0j",
                "0i",
                "0e",
                r"\frac{0}{x}",
                "x - x",
                r"0 \cdot x",
            ],
        ),
        (
            "0",
            [
                r"\frac{1}{\infty}",
                r"e^{-\infty}",
                r"0 \infty",
                r"\infty - \infty",
                "nan",
                "0 * nan",
                "False",
                r"0\%x",
            ],
        ),
        (
            "1",
            [
                r"\infty^0",
                r"\infty^{0}",
                "1_0",
                "1_{0}",
                "0^0",
                "0.0^{0}",
                r"1^\infty",
                "1^x",
                "x^0",
                "x/x",
                "i^4",
                "True",
            ],
        ),
        (
            "1",
            [
                r"\pi^0",
                r"\frac{\pi}{\pi}",
                r"\frac{\theta}{\theta}",
                r"\ell^0",
                r"\top",
                r"\infty/\infty",
                "1_00",
            ],
        ),
        ("5", ["5_5", "5x^0", r"5 \cdot \infty^0", "5_{x}", "(5)_0", "0x5", "0b101"]),
        (
            r"\sqrt{2}",
            [
                r"\sqrt{2} x^0",
                r"\sqrt{2} \cdot \infty^0",
                r"\sqrt{2} + x - x",
                r"\sqrt{2}_0",
                r"\frac{y\sqrt{2}}{y}",
            ],
        ),
        (r"\pi", [r"\pi + 0x2A", r"\pi \cdot \infty^0", r"\pi + x - x"]),
        ("x+1", [r"x + \infty^0", "x + 0x2A + 1", "x + 1_0", "x + 0^0"]),
    ],
)
def test_no_answer_is_paid_for_what_a_parser_drops_or_cancels(gold, answers):
    assert [answer for answer in answers if score(gold, answer)] == []


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (
            "42",
            [
                rf"42 \{style}{{ cm}}"
                for style in ("text", "textbf", "textsf", "texttt", "textsc", "emph", "hbox")
            ],
        ),
        ("42", [r"42 \mathsf{cm}", r"\underline{42}", r"\textsl{42}", r"\textbf{42} \textit{ cm}"]),
        (
            "1000",
            [
                "1 000",
                r"1\ 000",
                "1~000",
                r"1\,000",
                "1\u202f000",
                "1\u2009000",
                "1\u00a0000",
                r"1\;000",
                r"1\>000",
            ],
        ),
        (
            "1000",
            [
                r"1\thinspace 000",
                r"1{\,}000",
                "1{ }000",
                r"1\hspace{2pt}000",
                r"1\kern2pt000",
                r"1 000 \text{ cm}",
            ],
        ),
        ("-1234567.5", ["-1 234 567.5", r"-1~234~567.5", r"-1\ 234\ 567.5"]),
        (
            r"p=5,q=2\text{ and }p=7,q=2",
            ["p=5,q=2;p=7,q=2", "p=5, q=2; p=7, q=2", "p=5,q=2,p=7,q=2"],
        ),
        ("p=5,q=2;p=7,q=2", [r"p=5,q=2 \text{ and } p=7,q=2", "p=5,q=2; p=7,q=2", "(5,2),(7,2)"]),
        ("1, 2", ["1;2", r"1 \text{ and } 2", "1; 2"]),
        (r"\text{Monday}", [r"\textsf{Monday}", r"\emph{Monday}", r"\hbox{Monday}"]),
    ],
)
def test_spaces_and_styles_of_text_do_not_count(gold, answers):
    assert [answer for answer in answers if not score(gold, answer)] == []


def test_a_blank_groups_digits_by_three_alone():
    for gold, answers in {
        "1000": ["1 00", "10 00", "1 0000", "1 000 0", "1 000 00", "01 00 0"],
        "12": ["1 2"],
        "7": ["7 000"],
        "15.5": ["3 100/200"],
    }.items():
        assert [answer for answer in answers if score(gold, answer)] == []
    assert score("7/2", "3 100/200") == 1.0


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (
            "5",
            [
                r"\pm 5",
                "5 or 6",
                "5, 6",
                r"\{5\} \cup \{6\}",
                "[0, 10]",
                r"5 \approx 6",
                "4 < 5",
                "5 = 6",
                "x > 4",
            ],
        ),
        (
            "5",
            [
                ",".join(map(str, range(100))),
                r"\boxed{5} \boxed{6}",
                "5%x",
                r"5 \vee 6",
                r"\min(5, 6)",
                "5 (or 6)",
            ],
        ),
        (
            "1, 2",
            [
                ",".join(map(str, range(100))),
                "1, 2, 3",
                "1",
                "[1, 2]",
                "(1, 2) or (3, 4)",
                r"[0, 3]",
                r"1 \pm 1",
            ],
        ),
        (
            "[1, 2)",
            [
                "[0, 3)",
                r"[1, 2) \cup [5, 6)",
                "[1, 2]",
                "(1, 2)",
                r"\mathbb{R}",
                r"[1, 2) \text{ or } [1, 2]",
            ],
        ),
        ("0.333", ["1/3", "0.33"]),
        ("1/3", ["0.333", "0.3333333333"]),
        ("50", ["0.5", "5000"]),
    ],
)
def test_hedges_are_not_paid(gold, answers):
    assert [answer for answer in answers if score(gold, answer)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "unit", "behind"),
    [
        (r"\text{", "9", r"d~\cup"),
        ("", "(1,2),", ""),
        ("", "(a, ", "_{"),
        ("", "1 000 ", "x"),
        ("0x", "1_", "^"),
    ],
)
def test_a_long_answer_is_read_in_milliseconds(monkeypatch, before, unit, behind):
    monkeypatch.setattr(
        "turngym.envs.math.grading.grader._ask_math_verify",
        lambda *_: MathVerdict(1.0, "math-verify"),
    )
    text, spent = before + unit * (4900 // len(unit)) + behind, []
    for gold in ("42", "(1,2)", "x > 2"):
        began = time.process_time()
        GRADER._compare(gold, text)
        spent.append(time.process_time() - began)
    assert min(spent) < 0.25  # of 0.05 promised: other work runs beside the tests
