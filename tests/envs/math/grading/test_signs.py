import pytest

from turngym.envs.math.grading.signs import (
    has_algebra_operator,
    program_to_latex,
    unicode_to_latex,
    use_plain_operators,
)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        *(
            ("4×10⁵", r"4\times 10^{5}"),
            ("x₁₂", "x_{12}"),
            ("10⁻³", "10^{-3}"),
            ("2½", r"2\frac{1}{2}"),
            ("⅔", r"\frac{2}{3}"),
        ),
        *(
            ("３．５％", "3.5%"),
            ("𝟒𝟐", "42"),
            ("−5", "-5"),
            ("3⁄4", "3/4"),
            ("6⋅7", r"6\cdot 7"),
            ("5。", "5."),
            ("（1，2）", "(1,2)"),
        ),
        *(
            ("1\u200b2\ufeff", "12"),
            ("e\u0301", "é"),
            ("£5", "5"),
            ("$5~m$", "5 m"),
            ("don’t", "don't"),
            ("¹⁄₂", r"\frac{1}{2}"),
        ),
        # What turns the direction of a text, and what is another operator, stay.
        *(
            ("\u202e24", "\u202e24"),
            ("6\u20627", "6\u20627"),
            ("A⊕B", "A⊕B"),
            ("٤٢", "٤٢"),
            ("＼｛", "＼｛"),
        ),
    ],
)
def test_signs_are_written_as_latex_writes_them(text, latex):
    assert unicode_to_latex(text) == latex


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        *(
            ("x**2", "x^{2}"),
            ("x**10+1", "x^{10}+1"),
            ("2**(1/3)", "2^{1/3}"),
            ("x**-1", "x^{-1}"),
            ("x**((n+1)/2)", "x^{(n+1)/2}"),
        ),
        *(
            ("exp((x+1)/2)", "e^{(x+1)/2}"),
            ("sqrt(2+sqrt(3))", r"\sqrt{2+\sqrt{3}}"),
            ("cbrt(2)", r"\sqrt[3]{2}"),
        ),
        *(
            ("2*pi", r"2*\pi "),
            ("oo", r"\infty "),
            ("asin(1)", r"\arcsin(1)"),
            ("np.sqrt(2)", r"\sqrt{2}"),
            ("log(2)", r"\log(2)"),
        ),
        *(("Rational(1, 2)", "1/2"), ("[Fraction(-3, 4)]", "[-3/4]"), ("np.float64(2.5)", "2.5")),
        *(
            ("spin", "spin"),
            ("exp", "exp"),
            (r"\exp(2)", r"\exp(2)"),
            ("sqrt(2", "sqrt(2"),
            ("alpha", "alpha"),
        ),
    ],
)
def test_what_programs_print_is_written_as_latex_writes_it(text, latex):
    assert program_to_latex(text) == latex


def test_operators_of_algebra_can_be_read_as_plain_ones():
    assert use_plain_operators(r"6 ⊗ 7 ∔ 1 ∸ 2") == r"6 \cdot  7 + 1 - 2"
    assert has_algebra_operator(r"A \oplus B") and not has_algebra_operator(
        r"A \cdot B + 90^\circle"
    )


def test_many_calls_are_read_in_linear_steps():
    assert program_to_latex("sqrt(" * 400 + "2" + ")" * 400).count("sqrt") == 400
