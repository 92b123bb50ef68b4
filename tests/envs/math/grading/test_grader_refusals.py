import pytest

from turngym.envs.math.grading.grader import find_refusal, has_several_values
from turngym.envs.math.grading.notation import normalise_latex


def refused(gold, answer):
    reason = find_refusal(normalise_latex(gold), normalise_latex(answer))
    return reason and reason.split(";")[0].removeprefix("the box holds ")


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [
        *(
            (gold, answer, "a sum, product, integral or limit")
            for gold, answer in (
                *(
                    ("1", r"\int_0^1 3x^2 dx"),
                    ("5050", r"\sum_{k=1}^{100} k"),
                    ("5050", "∑ k"),
                    ("6", r"\prod_{k=1}^3 k"),
                ),
                *(
                    (r"\frac{\pi}{4}", r"\int_0^1 \frac{1}{1+x^2} dx"),
                    ("1", r"\lim_{x \to 0} \frac{\sin x}{x}"),
                ),
                *(
                    ("2", r"\frac{d}{dx} x^2"),
                    ("42", r"\max(7, 42)"),
                    ("42", r"\operatorname{lim} 42"),
                    ("1", "int x dx"),
                ),
            )
        ),
        *((gold, "4 or 5", "a relation or several values") for gold in ("5", "a", r"\sqrt{2}")),
        *(
            (gold, answer, "a relation or several values")
            for gold, answer in (("5", "4, 5"), ("5", "x<6"), ("5", "7 = 5"))
        ),
        *(
            ("5", answer, "a relation or several values")
            for answer in (r"4 \\ 5", "4;5", r"4 \to 5", r"4 \mid 5")
        ),
        *(
            ("x = 5", "x = 4 = 5", "a chain of relations"),
            ("x=11", "x=5+6=11", "a chain of relations"),
        ),
        *(
            ("5", r"\pm 5", "two values"),
            (r"\sqrt{2}", r"\pm\sqrt{2}", "two values"),
            ("5", "±5", "two values"),
        ),
        *(
            ("5", answer, "unworked arithmetic")
            for answer in ("2+3", "7-2", "(5)(1)", "5(1)", r"5 \cdot 1", "5*1", "5!")
        ),
        *(
            ("5", answer, "unworked arithmetic")
            for answer in (
                r"\sqrt{25}",
                "2^3",
                r"\log_2 32",
                "2^{2^1}",
                r"17 \bmod 6",
                "|-5|",
                "5 5",
            )
        ),
        *(
            ("5", answer, "no letter or digit")
            for answer in ("", "?", "...", r"\text{}", r"\text{ }", "-", "()")
        ),
        *(
            ("5", answer, "another box and more")
            for answer in (r"4 \boxed{5}", r"\boxed{4} \boxed{5}")
        ),
        ("5", r"\text{maybe } 5", "a number and words"),
    ],
)
def test_what_is_no_single_value_is_refused(gold, answer, reason):
    assert refused(gold, answer) == reason


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(("5", r"\frac{10}{2}"), ("5", "5")),
        *(
            ("x+1", "1+x"),
            ("1,2", "2,1"),
            (r"\pm 2", r"\pm 2"),
            ("2, -2", r"\pm 2"),
            ("x=5", "5=x"),
            ("a<b<c", "c>b>a"),
        ),
        *(
            (r"\sum_k a_k", r"\sum_j a_j"),
            (r"\infty", r"\infty"),
            (r"\emptyset", r"\varnothing"),
            ("x<5", "5>x"),
        ),
        *(
            (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
            ("sint", "print"),
        ),
    ],
)
def test_values_are_not_refused(gold, answer):
    assert refused(gold, answer) is None


def test_several_values_stand_outside_all_brackets():
    assert (
        has_several_values("1, 2")
        and has_several_values("(1,2), (3,4)")
        and has_several_values(r"1 \\ 2")
    )
    assert (
        not has_several_values("(1, 2)")
        and not has_several_values("1,234")
        and not has_several_values("f(x, y)")
    )
