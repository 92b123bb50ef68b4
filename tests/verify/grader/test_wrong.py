from fractions import Fraction

import pytest

from turngym.tests.verify.grader.written import number
from turngym.tests.verify.grader.wrong import VOID, faults, wrong

GOLDS = ["1234", "-7", r"\frac{3}{7}", r"(1, \sqrt{2})", r"\text{Monday}", "12.5"]


def test_completions_take_golds_in_turn_and_all_faults():
    made = list(wrong(GOLDS, 500))
    assert [one.gold for one in made[:7]] == [*GOLDS, GOLDS[0]]
    names = {name for gold in GOLDS for name in faults(gold, "8")}
    assert {name for name in names if not name.startswith("another task's")} <= {one.ways[0] for one in made}
    assert set(VOID) <= names and len(names) > 40


@pytest.mark.parametrize("gold", ["1234", "-7", "0", "1", r"\frac{3}{7}", r"-\frac{1}{3}", "12.5"])
def test_no_fault_of_a_number_has_its_value(gold):
    for name, text in faults(gold, "8").items():
        if name not in VOID:
            assert number(text) != number(gold), name


def test_a_neighbour_of_the_same_value_is_passed_over():
    others = {one.text for one in wrong(["2", "2.0", "5"], 60) if one.ways[0] == "another task's" and one.gold == "2"}
    assert others and all("5" in text for text in others)


def test_zero_has_no_other_sign():
    made = faults("0", "8")
    assert not {"other sign", "plus-minus", "a letter too many"} & set(made)
    assert number(made["half"]) == Fraction(1)
