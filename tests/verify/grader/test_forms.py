import ast
import re
from pathlib import Path

import pytest

from turngym.envs.math import MathGrader
from turngym.tests.verify.grader import forms as module
from turngym.tests.verify.grader import written
from turngym.tests.verify.grader.forms import FORMS, forms
from turngym.tests.verify.grader.written import squeeze


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_the_table_is_made_and_paid(name):
    gold, form = FORMS[name]
    made = forms(gold)
    assert made[name] == form
    assert MathGrader(60, shortcuts=False).grade(completion=f"\\boxed{{{form}}}", gold=gold).score == 1.0


@pytest.mark.parametrize(
    ("gold", "names"),
    [
        ("7", {"fraction", "assigned", "decimal"}),
        ("-1234", {"fraction", "assigned", "decimal", "thousands"}),
        (r"\frac{1}{3}", {"fraction", "assigned", "dfrac", "slash"}),
        (r"75\%", {"percent"}),
        (r"\begin{pmatrix} 0 & 1 \end{pmatrix}", {"bmatrix", "elements"}),
        (r"(-\infty, 2) \cup [3, 4]", {"order", "elements", "member"}),
        (r"x^2 - \sqrt{2}", {"power", "sum", "braces", "assigned", "doubled"} - {"x"}),
        ("y = 2x", {"turned", "value", "elements"}),
        (r"0.56 = 56\%", {"value"}),
        (r"-80\leq g(x)\leq 82", {"turned"}),
        ("+2", {"fraction", "assigned", "decimal"}),
        ("no formula, but words; and more", {"order", "elements", "set"}),
        ("?", {"assigned", "doubled"}),
        ("f(x), where", {"order", "elements", "set"}),
        (r"t(0,4]", set()),
    ],
)
def test_an_answer_has_the_forms_of_its_kind(gold, names):
    assert set(forms(gold)) == names


def test_a_form_differs_in_more_than_space_and_is_named_in_the_table():
    for gold, _ in FORMS.values():
        for name, form in forms(gold).items():
            assert name in FORMS and squeeze(form) != squeeze(gold)


def test_the_forms_know_nothing_of_the_grader():
    for source in (module, written):
        tree = ast.parse(Path(source.__file__).read_text("utf-8"))
        imported = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        known = (
            r"from __future__ import annotations|import re|from (collections\.abc|fractions|\.written) import [\w, ]+"
        )
        assert [line for line in imported if not re.fullmatch(known, line)] == []
