from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.grading import grader as grade_module
from turngym.envs.math.grading.grader import MathGrader, try_quick_verdict
from turngym.envs.math.grading.notation import normalise_latex
from turngym.envs.math.grading.numbers import read_number, same_number
from turngym.envs.math.grading.values import MAX_ELEMENTS, read_value, same_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("42", "42"),
            ("-42", "-42"),
            ("+42", "42"),
            ("007", "7"),
            ("42.", "42"),
            ("42.0", "42"),
            (".5", "1/2"),
        ),
        *(
            ("−3", "-3"),
            ("- 3", "-3"),
            ("1,234", "1234"),
            ("12,345,678.5", "24691357/2"),
            ("1{,}234", "1234"),
        ),
        *(
            (r"32,\!349", "32349"),
            (r"1\,234", "1234"),
            ("3/7", "3/7"),
            ("-3 / 7", "-3/7"),
            ("6/3", "2"),
        ),
        *(
            (r"\frac{3}{7}", "3/7"),
            (r"-\dfrac{3}{7}", "-3/7"),
            (r"\tfrac{-3}{7}", "-3/7"),
            (r"\frac37", "3/7"),
        ),
        *(
            (r"\$18", "18"),
            ("$18$", "18"),
            ("18$", "18"),
            (r"75\%", "75"),
            ("75 %", "75"),
            ("75 percent", "75"),
        ),
        *(
            (r"5\text{ cm}", "5"),
            (r"5 \mathrm{~m}^2", "5"),
            ("18 dollars", "18"),
            (r"90^\circ", "90"),
            ("90°", "90"),
        ),
        *(
            (r"2\frac{1}{2}", "5/2"),
            (r"-2 \frac12", "-5/2"),
            ("1 3/4", "7/4"),
            ("-1 3/4 cups", "-7/4"),
        ),
        *(("1.5e3", "1500"), ("2E-2", "1/50"), ("1e+20", "100000000000000000000")),
    ],
)
def test_plain_numbers_are_read_exactly(text, value):
    number = read_number(text)
    assert number is not None and number.value == Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-",
            ".",
            "x",
            "5x",
            "1 2",
            "1,22",
            "1,2,3",
            "12,34",
            "1.2.3",
            "--5",
            "1+1",
            "3-1",
            "2^3",
            "-(-5)",
            "(4)2",
            "5 m",
        ),
        *(
            "5 dozen",
            r"5 \text{ tenths}",
            "2 and a half",
            "3 or more",
            "5 pi",
            r"\frac{1.5}{2}",
            r"2\frac{3}{2}",
            "2 3/2",
            "2 0/2",
            r"2\frac{-1}{2}",
            "0x10",
        ),
        *(
            "1_000",
            "٣",
            "inf",
            "nan",
            "1e9999",
            "7" * 3000,
            "5 apples and 6 pears",
            r"\sqrt{2}",
            "10:30",
        ),
    ],
)
def test_anything_else_is_no_plain_number(text):
    assert read_number(text) is None


def test_a_division_by_zero_is_told_apart():
    for text in ("1/0", r"\frac{0}{0}"):
        with pytest.raises(ZeroDivisionError):
            read_number(text)


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        *(("0.5", "1/2", True), ("1/3", "0.333333", False), ("1/3", "0.3333333333333333", True)),
        *(
            ("248.4", "248.39999999999998", True),
            ("0.3", "0.30000000000000004", True),
            ("0.3", "0.3000000001", False),
        ),
        *(
            ("42", "41.99999999999999", False),
            ("1/3", "0.33333333333333333333", False),
            ("42", "42.00000000000000", True),
        ),
        *(
            ("1000000", "1000001", False),
            ("1000000", "1000000.00000000001", False),
            ("0", "0.000000000000001", False),
        ),
        *(
            (r"10\%", "10", True),
            ("10", r"10\%", True),
            ("0.1", r"10\%", True),
            (r"10\%", "0.1", True),
            ("10", "1000", False),
        ),
        *((r"10\%", r"0.1\%", False), (r"10\%", r"1000\%", False)),
    ],
)
def test_numbers_are_the_same_when_exactly_equal_or_when_a_double_is_printed(gold, answer, same):
    assert same_number(read_number(gold), read_number(answer)) is same


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6))
def test_every_way_of_writing_a_ratio_gives_its_value(top, bottom):
    sign, size = ("-" if top < 0 else ""), abs(top)
    forms = (
        f"{top}/{bottom}",
        f"\\frac{{{top}}}{{{bottom}}}",
        f"${sign}\\dfrac{{{size}}}{{{bottom}}}$",
        f"{top:,}/{bottom:,}",
    )
    assert {read_number(form).value for form in forms} == {Fraction(top, bottom)}


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100))
def test_a_printed_float_is_read_as_printed(number):
    assert float(read_number(repr(number)).value) == number


def compared(gold, answer):
    return same_value(read_value(normalise_latex(gold)), read_value(normalise_latex(answer)))


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        *(
            ("(1,2)", r"\left( 1, \frac{4}{2} \right)", True),
            ("(1,2)", "(2,1)", False),
            ("(1,2)", "(1,2,3)", False),
        ),
        *(("(1,2)", "[1,2]", False), ("[1,2)", "(1,2]", False), ("(1,2,3)", "[1,2,3]", None)),
        *((r"[0.5,\infty)", r"[1/2, +\infty)", True), (r"(-\infty,0)", r"(\infty,0)", False)),
        *(
            (r"\{1,2\}", r"\{2,1\}", True),
            (r"\{1,2\}", r"\{2,1,2\}", True),
            (r"\{1,2\}", r"\{1,3\}", False),
        ),
        *(
            ("1,2", r"\{2,1\}", True),
            (r"\{1,2\}", "2, 1", True),
            ("1,2", "2 , 1", True),
            ("1,1,2", "1,2,2", False),
        ),
        *(
            ("1,2", "1,2,2", False),
            ("1,2,2", "2,1,2", True),
            (r"\{1,2\}", "(1,2)", False),
            ("(1,2)", r"\{1,2\}", False),
        ),
        *(
            ("(3,4)", "3,4", True),
            ("(3,4)", "4,3", False),
            ("3,4", "(4,3)", True),
            ("[3,4]", "3,4", False),
        ),
        *(
            ("10, 20", r"10\%, 0.2", False),
            (r"10\%, 20\%", "0.1, 0.2", True),
            ("1/3, 1", "0.333, 1", False),
        ),
        *(
            (r"(1,2)\cup(3,4]", r"(3,4] \cup (1,2)", True),
            (r"(1,2)\cup(3,4]", r"(3,4) \cup (1,2)", None),
        ),
        *((r"[1,2]\cup[2,3]", "[1,3]", None), ("(1 1/2, 2)", "(1.5, 2)", True)),
    ],
)
def test_order_and_brackets_count_where_they_say_something(gold, answer, same):
    assert compared(gold, answer) is same


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "(a,b)",
            "(1,2",
            "1,,2",
            "(1+1,2)",
            r"(1,\sqrt{2})",
            ",".join("1" * (MAX_ELEMENTS + 1)),
            r"1,2\cup",
            "(,)",
        ),
    ],
)
def test_what_holds_anything_but_plain_numbers_is_left_alone(text):
    assert read_value(normalise_latex(text)) is None


def test_an_element_that_divides_by_zero_is_told_apart():
    with pytest.raises(ZeroDivisionError):
        read_value("(1, 1/0)")


@given(st.lists(st.fractions(), min_size=2, max_size=6), st.randoms())
def test_only_sets_and_lists_may_be_shuffled(values, random):
    shuffled = random.sample(values, len(values))
    one, other = (", ".join(map(str, order)) for order in (values, shuffled))
    assert compared(one, other) is True
    assert compared(f"\\{{{one}\\}}", f"\\{{{other}\\}}") is True
    assert compared(f"({one})", f"({other})") is (values == shuffled)


GRADER = MathGrader()


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        *(
            ("42", "42", (True, True)),
            ("42", "43", (False, False)),
            ("42", "-42", (False, False)),
            ("0", "-0", (True, False)),
        ),
        *(
            ("42", "42.0", (True, False)),
            ("1/2", "0.5", (True, False)),
            ("1/3", "0.3333", (False, False)),
        ),
        *(
            ("1234", "1,234", (True, False)),
            (r"\frac{1}{2}", r"\dfrac{2}{4}", (True, False)),
            ("-3/6", "-0.50", (True, False)),
        ),
        *(
            ("-3/6", r"\frac{1}{2}", (False, False)),
            ("1,234.5", "1234.5", None),
            (r"\frac{1}{2}", r"\frac{1}{2}", (True, True)),
        ),
    ],
)
def test_short_plain_numbers_are_decided_at_once(gold, answer, verdict):
    found = try_quick_verdict(f"<think>hm</think>So it is $\\boxed{{{answer}}}$.", gold)
    assert found == (None if verdict is None else (answer, *verdict))


@pytest.mark.parametrize(
    "completion",
    [
        *(
            "42",
            r"\boxed{}",
            r"\boxed {42}",
            r"\boxed{x}",
            r"\boxed{1/0}",
            r"\boxed{42",
            r"\fbox{42}",
            r"\boxed{\boxed{42}}",
        ),
        *(
            r"\boxed{42} \boxed{43}",
            r"\fbox{\boxed{42}}",
            r"\boxed {a \boxed{42}}",
            r"<think>\boxed{42}",
            "```\n\\boxed{42}\n```",
        ),
        *(
            r"\boxed{42}</think>",
            r"\boxed{42} <think>",
            r"\boxed{42\%}",
            r"\boxed{123456789012345}",
            r"\boxed{٤٢}",
        ),
    ],
)
def test_all_else_is_left_to_a_closer_look(completion):
    assert try_quick_verdict(completion, "42") is None


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).flatmap(
        lambda n: st.sampled_from([f"{n}", f"{n:,}", f"{n}.0", f"{2 * n}/2"])
    ),
    st.fractions(max_denominator=20).map(str),
    st.decimals(-1000, 1000, places=2).map(str),
    st.fractions(0, 50, max_denominator=9).map(
        lambda f: f"\\frac{{{f.numerator}}}{{{f.denominator}}}"
    ),
    st.from_regex(r"\A-?[0-9,./%]{1,6}\Z"),
)


@given(
    NUMBERS,
    NUMBERS,
    st.sampled_from(["{}", "a {} b", "<think>\\boxed{{1}}</think>{}", "{} or \\boxed{{1}}"]),
)
def test_it_says_what_the_general_way_says(gold, answer, around):
    completion = around.format(f"\\boxed{{{answer}}}")
    if (verdict := try_quick_verdict(completion, gold)) is None:
        return
    quick = GRADER.grade(completion=completion, gold=gold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grade_module, "try_quick_verdict", lambda *_: None)
        slow = GRADER.grade(completion=completion, gold=gold)
    assert (
        (quick.score, quick.answer) == (slow.score, slow.answer) == (float(verdict[1]), verdict[0])
    )


@given(
    st.integers(-(10**9), 10**9),
    st.integers(1, 10**6),
    st.integers(-(10**9), 10**9),
    st.integers(1, 10**6),
)
def test_ratios_are_compared_exactly(top, bottom, over, under):
    verdict = try_quick_verdict(f"\\boxed{{{top}/{bottom}}}", f"{over}/{under}")
    assert verdict is not None and verdict[1] is (Fraction(top, bottom) == Fraction(over, under))
