import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.relation import RELATION, ranges, unnamed
from turngym.envs.math.spelling import tidy


@pytest.mark.parametrize(
    ("gold", "answer", "left"),
    [
        *(("5", "x = 5", ("5", "5")), ("x=5", "5", ("5", "5")), ("x = 5", "x=6", ("5", "6"))),
        *(("x=5", "y=5", ("x=5", "y=5")), ("5", "x_{1} = 5", ("5", "5")), ("5", r"\theta \approx 5", ("5", "5"))),
        *(("5", "m + n = 5", ("5", "5")), ("5", r"\text{Area} = 5", ("5", "5")), ("5", "AB=5", ("5", "5"))),
        *(("5", r"\angle ABC = 5", ("5", "5")), ("5", "|A| = 5", ("5", "5")), ("5", "f(3) = 5", ("5", "5"))),
        *(("x+y=1", "1", ("x+y=1", "1")), ("5", "7 = 5", ("5", "7 = 5")), ("5", "m+n = 4 = 5", ("5", "m+n = 4 = 5"))),
        *(("2x", "f(x) = 2x", ("2x", "2x")), ("(3, 4)", "(x, y) = (3, 4)", ("(3, 4)", "(3, 4)"))),
        *(("5", "x = 4 = 5", ("5", "x = 4 = 5")), ("x+y=1", "y = 1-x", ("x+y=1", "y = 1-x"))),
        *(("2, 3", "x = 2, x = 3", ("2, 3", "2, 3")), ("x_{1}=2, x_{2}=3", "3, 2", ("2, 3", "3, 2"))),
        *(("2, 3", r"x=2 \text{ or } x=3", ("2, 3", "2, 3")), ("2, 3", "x=2 and x=3", ("2, 3", "2, 3"))),
        *(("2, 3", "x = 2, y = 3", ("2, 3", "x = 2, y = 3")), ("[1, 2]", r"x \in [1, 2]", ("[1, 2]", "[1, 2]"))),
    ],
)
def test_a_value_loses_its_name_unless_the_names_differ(gold, answer, left):
    assert unnamed(tidy(gold), tidy(answer)) == left


@pytest.mark.parametrize(
    ("gold", "answer", "left"),
    [
        *(("[1, 2)", r"1 \leq x < 2", ("[1, 2)", "[1, 2)")), ("(1, 2)", "2 > x > 1", ("(1, 2)", "(1, 2)"))),
        *((r"x \in (1, 2]", r"1 < x \le 2", ("(1, 2]", "(1, 2]")), (r"(3, \infty)", "x>3", (r"(3, \infty)",) * 2)),
        *((r"(-\infty, 5]", r"5 \geq x", (r"(-\infty, 5]",) * 2), (r"[5, \infty)", "5 <= x", (r"[5, \infty)",) * 2)),
        *((r"x < 1 \text{ or } x > 3", r"(3, \infty)", (r"(-\infty, 1) \cup (3, \infty)", r"(3, \infty)")),),
        *((r"[0, \sqrt{2}]", r"0 \le x \le \sqrt{2}", (r"[0, \sqrt{2}]",) * 2),),
        *(("1 < x < 2", "1 < y < 2", ("1 < x < 2", "1 < y < 2")), ("x^2 < 4", "(-2, 2)", ("x^2 < 4", "(-2, 2)"))),
        *(("[1, 2]", "1 < 2", ("[1, 2]", "1 < 2")), ("5", "x > 5", ("5", "x > 5")), ("(1,2)", "x=1", ("(1,2)", "x=1"))),
        *(("[1, 2]", "1 < x < a", ("[1, 2]", "1 < x < a")), ("a < b < c", "c > b > a", ("a < b < c", "c > b > a"))),
    ],
)
def test_inequalities_for_one_letter_become_intervals_where_both_are_such(gold, answer, left):
    assert ranges(tidy(gold), tidy(answer)) == left


@pytest.mark.parametrize("text", ["x=1", "a<b", r"a \to b", "1 or 2", r"x \in S", "1; 2", r"a \mid b", "x ≈ 1"])
def test_relations_are_seen(text):
    assert RELATION.search(text)


@pytest.mark.parametrize("text", ["1", "x+1", r"\infty", r"\left(1\right)", "Oregon", "band", r"\int f", r"\leftarrow"])
def test_other_texts_are_no_relations(text):
    assert not RELATION.search(text)


@given(st.text(alphabet="x<>=≤, 12()[]\\inleorandfrac{}_y∞", max_size=60), st.text(alphabet="x<=, 1(]", max_size=30))
def test_no_text_breaks_the_reading(gold, answer):
    ranges(*unnamed(tidy(gold), tidy(answer)))


@pytest.mark.parametrize("piece", ["x=", "1<x<", "x<1 or ", "x_1=2,", "(x,", r"\in", "<", "1,"])
def test_long_texts_are_read_in_linear_time(piece):
    text = piece * (5000 // len(piece))  # as long as an answer may be
    ranges(*unnamed(text, text))
