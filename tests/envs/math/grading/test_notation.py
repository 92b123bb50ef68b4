from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.grading.names import strip_names
from turngym.envs.math.grading.notation import (
    RELATION,
    adapt_to_math_verify,
    normalise_latex,
    normalise_words,
    read_number_in_base,
    read_words,
    split_unit,
    unwrap,
    write_as_intervals,
)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (r"\dfrac12", r"\frac{1}{2}"),
        (r"\frac 1{72}", r"\frac{1}{72}"),
        (r"\frac{15}4", r"\frac{15}{4}"),
        (r"\frac{\sqrt6}3", r"\frac{\sqrt{6}}{3}"),
        (r"\frac \pi4 + \tfrac\pi 2", r"\frac{\pi}{4} + \frac{\pi}{2}"),
        (r"2\sqrt 5", r"2\sqrt{5}"),
        (r"\$ 1{,}234\,567", "1,234,567"),
        (r"111, \! 111, \! 111", "111,111,111"),
        (r"\left(1,\ 2\right)", "(1, 2 )"),
        (
            r"\begin{pmatrix} 1 \\ -2 \\ 3 \end{pmatrix}",
            r"\begin{pmatrix} 1 \\ -2 \\ 3 \end{pmatrix}",
        ),
        (r"\begin{pmatrix} 1 & \phantom -1 \end{pmatrix}", r"\begin{pmatrix} 1 & 1 \end{pmatrix}"),
        (r"90^\circ, 45 ^{\circ}, 30°", "90°, 45°, 30°"),
        (r"k \geqslant 2", r"k \geq 2"),
        (r"\text{the slant}", r"\text{the slant}"),
        (r"\mathbf{2340} \text{ or } \text{13}", r"2340 \text{ or } 13"),
        ("3i + 2in", "3 i + 2in"),
        ("x^(1/2) + sqrt(3)", r"x^{1/2} + \sqrt{3}"),
        ("np.arcsin(1/2)", r"\arcsin(1/2)"),
        (r"m_{\max } + \lambda_{\text {red}}", r"m_{max} + \lambda_{red}"),
        (r"\overline{CD} + 0.\overline{3}", r"CD + 0.\overline{3}"),
    ],
)
def test_every_spelling_becomes_one(text, same):
    assert normalise_latex(text) == same
    assert normalise_latex(same) == same


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        *(
            (r"\boxed{\boxed{3}}", "3"),
            ("{10,100}", "10,100"),
            (r"\fbox{ x }.", "x"),
            (r"\boxed{{3}}", "3"),
            ("", ""),
        ),
        *(
            (r"\mathbf{\frac{1}{2}}", r"\frac{1}{2}"),
            (r"\text{$\sqrt{2}$}", r"\sqrt{2}"),
            (r"\boldsymbol{-3}", "-3"),
        ),
        *(
            (text, text)
            for text in (
                r"\text{Yes}",
                r"\text{(B)}",
                r"\text{3 or 4}",
                r"\boxed{3} \boxed{4}",
                "{1}{2}",
                "{1",
            )
        ),
        *(
            (text, text)
            for text in (r"\{1, 2\}", r"\frac{1}{2}", r"\sqrt{2}", "x", r"\boxed{1} + 2")
        ),
    ],
)
def test_what_is_around_all_of_an_answer_is_taken_away(text, inside):
    assert unwrap(normalise_latex(text)) == inside


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("√2 + √(3)", r"\sqrt{2} + \sqrt{3}"),
        ("x² ± π", r"x^{2} \pm \pi"),
        (r"-2 \\le x \\le 7", r"-2 \le x \le 7"),
        (r"\begin{pmatrix} a \\ bc \end{pmatrix}", r"\begin{pmatrix} a \\ bc \end{pmatrix}"),
        ("∅", r"\emptyset"),
        (r"\varnothing", r"\emptyset"),
    ],
)
def test_what_models_write_for_commands_becomes_commands(text, same):
    assert normalise_latex(text) == same


@given(st.text(alphabet=r"\{}[]()$^_,.;:!%°~ 123abcifrtextsqpi+-=<>", max_size=80))
def test_no_text_breaks_the_spelling(text):
    once = normalise_latex(text)
    for make in (
        read_words,
        normalise_words,
        read_number_in_base,
        split_unit,
        adapt_to_math_verify,
        unwrap,
    ):
        make(once)


@pytest.mark.parametrize(
    "piece",
    [r"\frac", r"\frac{", r"\sqrt", "_{", r"\text{", "(", "{", "^(", r"\phantom", "1,", " "],
)
def test_hostile_texts_are_read_in_linear_time(piece):
    once = normalise_latex(
        piece * 20_000
    )  # in quadratic time this would outlast the test's timeout
    for make in (
        read_words,
        normalise_words,
        read_number_in_base,
        split_unit,
        adapt_to_math_verify,
        unwrap,
    ):
        make(once)


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("Evelyn", "evelyn"),
        (r"\text{May}", "may"),
        (r"\mbox{two lines}.", "two lines"),
        (r"\text{Softball, Kickball}", "softball,kickball"),
        (r"\text{C,A}", "a,c"),
        (r"\text{4:30 p.m.}", "4:30p"),
        (r"4:30 \text{ PM}", "4:30p"),
        ("05:00", "5:00"),
        ("9 : 24", "9:24"),
    ],
)
def test_words_choices_and_times_are_told_from_formulas(gold, said):
    assert read_words(normalise_latex(gold)) == said
    assert normalise_words(normalise_latex(gold)) == said


@pytest.mark.parametrize(
    "gold",
    ["abc", "C", r"\text{C}", "3:5", "19:60", "x+1", "12", r"\text{12}", r"5 \text{ cm}", "i"],
)
def test_formulas_are_no_words(gold):
    assert read_words(normalise_latex(gold)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("43_5", (23, 5)),
        (r"(43)_{\text{five}}", (23, 5)),
        ("-221_{3}", (-25, 3)),
        ("(-221)_3", (-25, 3)),
        (r"\text{A5}_{11}", (115, 11)),
        ("0.0011_{2}", (Fraction(3, 16), 2)),
        ("0043_5", (23, 5)),
        *(
            (text, None)
            for text in (
                "43",
                "48_5",
                "43_1",
                "43_0",
                "43_37",
                "x_2",
                "E_{1}",
                "43_{zwei}",
                "4.3.1_5",
                "_5",
            )
        ),
    ],
)
def test_numbers_with_a_base_have_its_value(text, value):
    assert read_number_in_base(normalise_latex(text)) == value


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (r"8\sqrt{3} \text { square inches}", (r"8\sqrt{3}", "square inche")),
        (r"3\pi\text{ in}^2.", (r"3\pi", "in2")),
        (r"12 \mathrm{cm}", ("12", "cm")),
        (r"\text{cm}", (r"\text{cm}", "")),
        (r"5 + \text{cm}", (r"5 + \text{cm}", "")),
        (r"x \text{ for } y", (r"x \text{ for } y", "")),
    ],
)
def test_a_unit_is_what_stands_behind_a_value(text, parts):
    assert split_unit(normalise_latex(text)) == parts


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r"6, 8\text{, and }10", "6, 8, 10"),
        (r"2, 3, \text{ and } 4", "2, 3, 4"),
        ("c > b >= a", r"a\leq b <c"),
        ("a < b < c", "a < b < c"),
        ("a > b < c", "a > b < c"),
        ("x > 1, y > 2", "x > 1, y > 2"),
        ("x > 1", "x > 1"),
        (r"E_{1} + \gamma^2 + Ex", r"\text{nameE}_{1} + \text{namegamma}^2 + Ex"),
    ],
)
def test_formulas_are_written_as_math_verify_reads_them(text, read):
    assert " ".join(adapt_to_math_verify(normalise_latex(text)).split()) == " ".join(read.split())


@pytest.mark.parametrize(
    ("gold", "answer", "left"),
    [
        *(("5", "x = 5", ("5", "5")), ("x=5", "5", ("5", "5")), ("x = 5", "x=6", ("5", "6"))),
        *(
            ("x=5", "y=5", ("5", "y=5")),
            ("5", "x_{1} = 5", ("5", "5")),
            ("5", r"\theta \approx 5", ("5", "5")),
        ),
        *(
            ("5", "m + n = 5", ("5", "5")),
            ("5", r"\text{Area} = 5", ("5", "5")),
            ("5", "AB=5", ("5", "5")),
        ),
        *(
            ("5", r"\angle ABC = 5", ("5", "5")),
            ("5", "|A| = 5", ("5", "5")),
            ("5", "f(3) = 5", ("5", "5")),
        ),
        *(
            ("x+y=1", "1", ("x+y=1", "1")),
            ("5", "7 = 5", ("5", "7 = 5")),
            ("5", "m+n = 4 = 5", ("5", "m+n = 4 = 5")),
        ),
        *(("2x", "f(x) = 2x", ("2x", "2x")), ("(3, 4)", "(x, y) = (3, 4)", ("(3, 4)", "(3, 4)"))),
        *(("5", "x = 4 = 5", ("5", "x = 4 = 5")), ("x+y=1", "y = 1-x", ("x+y=1", "y = 1-x"))),
        *(
            ("2, 3", "x = 2, x = 3", ("2, 3", "2, 3")),
            ("x_{1}=2, x_{2}=3", "3, 2", ("2, 3", "3, 2")),
        ),
        *(
            ("2, 3", r"x=2 \text{ or } x=3", ("2, 3", "2, 3")),
            ("2, 3", "x=2 and x=3", ("2, 3", "2, 3")),
        ),
        *(
            ("2, 3", "x = 2, y = 3", ("2, 3", "(2, 3)")),
            ("[1, 2]", r"x \in [1, 2]", ("[1, 2]", "[1, 2]")),
        ),
    ],
)
def test_a_value_loses_its_name_unless_the_names_differ(gold, answer, left):
    assert strip_names(normalise_latex(gold), normalise_latex(answer)) == left


@pytest.mark.parametrize(
    ("gold", "answer", "left"),
    [
        *(
            ("[1, 2)", r"1 \leq x < 2", ("[1, 2)", "[1, 2)")),
            ("(1, 2)", "2 > x > 1", ("(1, 2)", "(1, 2)")),
        ),
        *(
            (r"x \in (1, 2]", r"1 < x \le 2", ("(1, 2]", "(1, 2]")),
            (r"(3, \infty)", "x>3", (r"(3, \infty)",) * 2),
        ),
        *(
            (r"(-\infty, 5]", r"5 \geq x", (r"(-\infty, 5]",) * 2),
            (r"[5, \infty)", "5 <= x", (r"[5, \infty)",) * 2),
        ),
        *(
            (
                r"x < 1 \text{ or } x > 3",
                r"(3, \infty)",
                (r"(-\infty, 1) \cup (3, \infty)", r"(3, \infty)"),
            ),
        ),
        *((r"[0, \sqrt{2}]", r"0 \le x \le \sqrt{2}", (r"[0, \sqrt{2}]",) * 2),),
        *(
            ("1 < x < 2", "1 < y < 2", ("1 < x < 2", "1 < y < 2")),
            ("x^2 < 4", "(-2, 2)", ("x^2 < 4", "(-2, 2)")),
        ),
        *(
            ("[1, 2]", "1 < 2", ("[1, 2]", "1 < 2")),
            ("5", "x > 5", ("5", "x > 5")),
            ("(1,2)", "x=1", ("(1,2)", "x=1")),
        ),
        *(
            ("[1, 2]", "1 < x < a", ("[1, 2]", "1 < x < a")),
            ("a < b < c", "c > b > a", ("a < b < c", "c > b > a")),
        ),
    ],
)
def test_inequalities_for_one_letter_become_intervals_where_both_are_such(gold, answer, left):
    assert write_as_intervals(normalise_latex(gold), normalise_latex(answer)) == left


@pytest.mark.parametrize(
    "text", ["x=1", "a<b", r"a \to b", "1 or 2", r"x \in S", "1; 2", r"a \mid b", "x ≈ 1"]
)
def test_relations_are_seen(text):
    assert RELATION.search(text)


@pytest.mark.parametrize(
    "text", ["1", "x+1", r"\infty", r"\left(1\right)", "Oregon", "band", r"\int f", r"\leftarrow"]
)
def test_other_texts_are_no_relations(text):
    assert not RELATION.search(text)


@given(
    st.text(alphabet="x<>=≤, 12()[]\\inleorandfrac{}_y∞", max_size=60),
    st.text(alphabet="x<=, 1(]", max_size=30),
)
def test_no_text_breaks_the_reading(gold, answer):
    write_as_intervals(*strip_names(normalise_latex(gold), normalise_latex(answer)))


@pytest.mark.parametrize("piece", ["x=", "1<x<", "x<1 or ", "x_1=2,", "(x,", r"\in", "<", "1,"])
def test_long_texts_are_read_in_linear_time(piece):
    text = piece * (5000 // len(piece))  # as long as an answer may be
    write_as_intervals(*strip_names(text, text))
