"""Expressions: what the grammar reads, and that nothing else is one."""

from fractions import Fraction

import pytest

from turngym.envs.math.grading.expressions import NoExpression, read_expression


def formula(text):
    return read_expression(text, names=True, functions={"sin", "exp"}, powers=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12*51 - 37 - 94", 481),
        ("(12 * 51) - (37 + 94)", 481),
        ("-3 + 2*-4", -11),
        ("8/3/4", Fraction(2, 3)),
        ("12.0 + .5", Fraction(25, 2)),
        ("((((7))))", 7),
    ],
)
def test_arithmetic_is_exact(text, value):
    assert read_expression(text).value == value


def test_numbers_are_told_in_their_order():
    assert read_expression("12*(3 - 4)/3").numbers == [12, 3, 4, 3]


def test_a_formula_is_written_anew_of_the_parts_that_were_read():
    read = formula("-X**2/2 + sin(3*X)*0.5 + pi + C_1")
    integer, name = "Integer({})".format, "Symbol('{}')".format
    assert read.sympy_code.replace(" ", "") == (
        f"-{name('X')}**{integer(2)}/{integer(2)}+sin({integer(3)}*{name('X')})*Float('0.5')+pi+{name('C_1')}"
    )
    assert read.names == {"X", "pi", "C_1"} and read.value is None


HOSTILE = [
    *(
        "open('x')",
        "__import__('os')",
        "x.y",
        "x[0]",
        "f'{x}'",
        '"a"',
        "'a'",
        "[1]",
        "{1}",
        "x = 1",
        "x, y",
        "1; 2",
    ),
    *(
        "lambda: 1",
        "x if x else 1",
        "[i for i in x]",
        "x or x",
        "sin(x=1)",
        "sin(1, 2)",
        "sin()",
        "sin",
        "sin.__doc__",
    ),
    *(
        "exp('open'+'(')",
        "1 @ 2",
        "~1",
        "1 % 2",
        "1 // 2",
        "1 << 2",
        "5!",
        "\\frac{1}{2}",
        "#",
        "1\\\n+2",
        "1\n+2",
    ),
    *(
        "ｏｐｅｎ(1)",
        "𝒆𝒙𝒆𝒄(1)",
        "ｘ",
        "١",
        "²",
        "1\u00a0+ 2",
        "1\u200b2",
        "x_",
        "_x",
        "x__y",
        "__x__",
        "x_a",
        "0x10",
    ),
    *(
        "1_000",
        "1e5",
        "5j",
        "1.2.3",
        "1..real",
        "12 34",
        "2(3)",
        "(2)(3)",
        "2x",
        "",
        " ",
        "()",
        "(1",
        "1)",
        "1 +",
        "*1",
    ),
    *(
        "Symbol(1)",
        "eval(1)",
        "sinh(1)",
        "Integer(3)",
        "1/0",
        "1/(2-2)",
        "0**-1",
        "\x00",
        "\ud800",
        "print(1)",
    ),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_the_grammar_does_not_list_is_no_expression(text):
    with pytest.raises(NoExpression):
        formula(text)


@pytest.mark.parametrize("text", ["x", "C", "E/E", "2**3", "sin(1)", "(1+2)*(E-E)"])
def test_numbers_alone_have_no_names_and_no_powers(text):
    with pytest.raises(NoExpression):
        read_expression(text)


LARGE = [
    "9" * 31,
    "1+" * 600 + "1",
    "(" * 60 + "1" + ")" * 60,
    "-" * 60 + "1",
    "9**9**9**9",
    "2**-9**9",
    "x**101",
]
LARGE += [
    "(9**99)**99",
    "((9**90)**10)**10",
    "*".join(["9" * 20] * 100),
    "x**(2**10)",
    "2**2**2**2**2**2",
]


@pytest.mark.parametrize("text", LARGE, ids=range(len(LARGE)))
def test_what_is_long_or_deep_or_large_is_not_read(text):
    with pytest.raises(NoExpression):
        formula(text)
