from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.plain import read_number, same_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("42", "42"), ("-42", "-42"), ("+42", "42"), ("007", "7"), ("42.", "42"), ("42.0", "42"), (".5", "1/2")),
        *(("−3", "-3"), ("- 3", "-3"), ("1,234", "1234"), ("12,345,678.5", "24691357/2"), ("1{,}234", "1234")),
        *((r"32,\!349", "32349"), (r"1\,234", "1234"), ("3/7", "3/7"), ("-3 / 7", "-3/7"), ("6/3", "2")),
        *((r"\frac{3}{7}", "3/7"), (r"-\dfrac{3}{7}", "-3/7"), (r"\tfrac{-3}{7}", "-3/7"), (r"\frac37", "3/7")),
        *((r"\$18", "18"), ("$18$", "18"), ("18$", "18"), (r"75\%", "75"), ("75 %", "75"), ("75 percent", "75")),
        *((r"5\text{ cm}", "5"), (r"5 \mathrm{~m}^2", "5"), ("18 dollars", "18"), (r"90^\circ", "90"), ("90°", "90")),
        *((r"2\frac{1}{2}", "5/2"), (r"-2 \frac12", "-5/2"), ("1 3/4", "7/4"), ("-1 3/4 cups", "-7/4")),
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
            "(5)",
            "5 m",
        ),
        *(
            "5 million",
            r"5 \text{ million}",
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
        *("1_000", "٣", "inf", "nan", "1e9999", "7" * 3000, "5 apples and 6 pears", r"\sqrt{2}", "10:30"),
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
        *(("248.4", "248.39999999999998", True), ("0.3", "0.30000000000000004", True), ("0.3", "0.3000000001", False)),
        *(
            ("42", "41.99999999999999", False),
            ("1/3", "0.33333333333333333333", False),
            ("42", "42.00000000000000", True),
        ),
        *(("1000000", "1000001", False), ("1000000", "1000000.00000000001", False), ("0", "0.000000000000001", False)),
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
