from fractions import Fraction

import pytest

from turngym.tests.verify.grader.written import clean, fractions, number, product, roots, split, squeeze, terms


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        (r"$\left(1,\ 2\right)$.", "(1, 2 )"),
        (r"\$18", r"\$18"),
        (r"\dfrac 94\pi", r"\frac{9}{4}\pi"),
        (r"\frac{1}2 + \cfrac3{4}", r"\frac{1}{2} + \frac{3}{4}"),
        (r"2\sqrt3", r"2\sqrt{3}"),
        (r"10,\!000 + 8{,}880", "10000 + 8880"),
        (r"6, 8\text{, and }10", "6, 8, 10"),
        (r"\begin{pmatrix} 1 \\ \phantom -2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ],
)
def test_a_gold_is_cleaned_of_what_means_nothing(gold, text):
    assert clean(gold) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("-12", -12), ("1,234.5", Fraction(2469, 2)), (".5", Fraction(1, 2)), ("7.", 7), ("-3./2", Fraction(-3, 2))),
        *(
            (r"-\frac{3}{6}", Fraction(-1, 2)),
            (r"\frac{-3}{6}", Fraction(-1, 2)),
            (r"-15\frac{3}{5}", Fraction(-78, 5)),
        ),
        *((text, None) for text in ("x", "1+1", "1 2", "", r"\frac{x}{2}", "12,34", "2^3")),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert number(text) == value


def test_texts_are_split_outside_brackets_alone():
    assert split(r"(1, 2), \{3, 4\}, f(x)", ",") == ["(1, 2)", r"\{3, 4\}", "f(x)"]
    assert split(r"a\,b; c", ",;") == [r"a\,b", "c"]
    assert squeeze(" a\n b\t") == "ab"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a - b + c", ["+a", "- b", "+ c"]),
        ("-a^{2-n} - (b - c)", ["-a^{2-n}", "- (b - c)"]),
        (r"2 \cdot -3", [r"2 \cdot -3"]),
        (r"1 \pm 2 + 3", [r"1 \pm 2 + 3"]),
    ],
)
def test_sums_have_signed_terms(text, parts):
    assert terms(text) == parts


def test_fractions_and_roots_are_written_another_way():
    assert fractions(r"x + \frac{\frac{1}{2}}{\sqrt{3}}", "({})/({})") == r"x + ((1)/(2))/(\sqrt{3})"
    assert roots(r"2\sqrt{3} + \sqrt[3]{x + 1}") == r"2 \cdot (3)^{1/2} +(x + 1)^{1/3}"


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        (r"-2\pi", r"-\pi \cdot 2"),
        (r"\frac{1}{2}\sqrt{3}", r"\sqrt{3} \cdot \frac{1}{2}"),
        ("3x^2", r"x^2 \cdot 3"),
        ("2x(x+1)(x-3)^2", r"(x-3)^2 \cdot (x+1) \cdot 2x"),
        ("(x+1)", None),
        ("2x+1", None),
        ("x", None),
    ],
)
def test_products_have_factors(text, turned):
    assert product(text) == turned
