"""Right completions are right and wrong ones are wrong, by a reading that knows nothing of the grader."""

import ast
from fractions import Fraction
from pathlib import Path

import pytest

from turngym.tests.verify.grader import forms, right, written, wrong
from turngym.tests.verify.grader.written import number


@pytest.mark.parametrize("gold", ["1234", "-7", "0", "70000"])
def test_plain_spellings_of_a_number_have_its_value(gold):
    values = {number(text) for text in right.spellings(gold).values()} - {None}
    assert values == {Fraction(gold)}


@pytest.mark.parametrize("gold", ["1234", "-7", "0", "1", r"\frac{3}{7}", r"-\frac{1}{3}", "12.5"])
def test_no_fault_of_a_number_has_its_value(gold):
    for name, text in wrong.faults(gold, "8").items():
        if name not in wrong.VOID:
            assert number(text) != number(gold), name


@pytest.mark.parametrize("module", [forms, right, written, wrong])
def test_the_generators_do_not_know_the_grader(module):
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    imported = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [
        line for line in imported if "turngym" in line and "turngym.tests.verify.grader" not in line
    ]
