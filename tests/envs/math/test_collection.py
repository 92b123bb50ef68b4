import pytest
from hypothesis import given
from hypothesis import strategies as st

from turngym.envs.math.collection import MAX_ELEMENTS, read_collections, same_collections
from turngym.envs.math.spelling import tidy


def compared(gold, answer):
    return same_collections(read_collections(tidy(gold)), read_collections(tidy(answer)))


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        *(("(1,2)", r"\left( 1, \frac{4}{2} \right)", True), ("(1,2)", "(2,1)", False), ("(1,2)", "(1,2,3)", False)),
        *(("(1,2)", "[1,2]", False), ("[1,2)", "(1,2]", False), ("(1,2,3)", "[1,2,3]", None)),
        *((r"[0.5,\infty)", r"[1/2, +\infty)", True), (r"(-\infty,0)", r"(\infty,0)", False)),
        *((r"\{1,2\}", r"\{2,1\}", True), (r"\{1,2\}", r"\{2,1,2\}", True), (r"\{1,2\}", r"\{1,3\}", False)),
        *(("1,2", r"\{2,1\}", True), (r"\{1,2\}", "2, 1", True), ("1,2", "2 , 1", True), ("1,1,2", "1,2,2", False)),
        *(
            ("1,2", "1,2,2", False),
            ("1,2,2", "2,1,2", True),
            (r"\{1,2\}", "(1,2)", False),
            ("(1,2)", r"\{1,2\}", False),
        ),
        *(("(3,4)", "3,4", True), ("(3,4)", "4,3", False), ("3,4", "(4,3)", True), ("[3,4]", "3,4", False)),
        *(("10, 20", r"10\%, 0.2", False), (r"10\%, 20\%", "0.1, 0.2", True), ("1/3, 1", "0.333, 1", False)),
        *((r"(1,2)\cup(3,4]", r"(3,4] \cup (1,2)", True), (r"(1,2)\cup(3,4]", r"(3,4) \cup (1,2)", None)),
        *((r"[1,2]\cup[2,3]", "[1,3]", None), ("(1 1/2, 2)", "(1.5, 2)", True)),
    ],
)
def test_order_and_brackets_count_where_they_say_something(gold, answer, same):
    assert compared(gold, answer) is same


@pytest.mark.parametrize(
    "text",
    [
        *(
            "5",
            "(5)",
            "",
            "1,234",
            "(1,234)",
            "(a,b)",
            "(1,2",
            "1,,2",
            r"(1,2)\cup\{3,4\}",
            "3 cm, 4 cm",
            "(1,2),(3,4)",
        ),
        *(r"\{(1,2),(3,4)\}", r"(1,\sqrt{2})", ",".join("1" * (MAX_ELEMENTS + 1)), "1;2", r"1,2\cup", "(,)"),
    ],
)
def test_anything_but_several_plain_numbers_is_left_alone(text):
    assert read_collections(tidy(text)) is None


def test_an_element_that_divides_by_zero_is_told_apart():
    with pytest.raises(ZeroDivisionError):
        read_collections("(1, 1/0)")


@given(st.lists(st.fractions(), min_size=2, max_size=6), st.randoms())
def test_only_sets_and_lists_may_be_shuffled(values, random):
    shuffled = random.sample(values, len(values))
    one, other = (", ".join(map(str, order)) for order in (values, shuffled))
    assert compared(one, other) is True
    assert compared(f"\\{{{one}\\}}", f"\\{{{other}\\}}") is True
    assert compared(f"({one})", f"({other})") is (values == shuffled)
