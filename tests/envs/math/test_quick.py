from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math import grade as grade_module
from turngym.envs.math.grade import MathGrader
from turngym.envs.math.quick import quick_verdict

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
        *(("42", "42.0", (True, False)), ("1/2", "0.5", (True, False)), ("1/3", "0.3333", (False, False))),
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
    found = quick_verdict(f"<think>hm</think>So it is $\\boxed{{{answer}}}$.", gold)
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
        *(r"\boxed{42}</think>", r"\boxed{42} <think>", r"\boxed{42\%}", r"\boxed{123456789012345}", r"\boxed{٤٢}"),
    ],
)
def test_all_else_is_left_to_a_closer_look(completion):
    assert quick_verdict(completion, "42") is None


NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).flatmap(lambda n: st.sampled_from([f"{n}", f"{n:,}", f"{n}.0", f"{2 * n}/2"])),
    st.fractions(max_denominator=20).map(str),
    st.decimals(-1000, 1000, places=2).map(str),
    st.fractions(0, 50, max_denominator=9).map(lambda f: f"\\frac{{{f.numerator}}}{{{f.denominator}}}"),
    st.from_regex(r"\A-?[0-9,./%]{1,6}\Z"),
)


@given(NUMBERS, NUMBERS, st.sampled_from(["{}", "a {} b", "<think>\\boxed{{1}}</think>{}", "{} or \\boxed{{1}}"]))
def test_it_says_what_the_general_way_says(gold, answer, around):
    completion = around.format(f"\\boxed{{{answer}}}")
    if (verdict := quick_verdict(completion, gold)) is None:
        return
    quick = GRADER.grade(completion=completion, gold=gold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grade_module, "quick_verdict", lambda *_: None)
        slow = GRADER.grade(completion=completion, gold=gold)
    assert (quick.score, quick.answer) == (slow.score, slow.answer) == (float(verdict[1]), verdict[0])


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_ratios_are_compared_exactly(top, bottom, over, under):
    verdict = quick_verdict(f"\\boxed{{{top}/{bottom}}}", f"{over}/{under}")
    assert verdict is not None and verdict[1] is (Fraction(top, bottom) == Fraction(over, under))
