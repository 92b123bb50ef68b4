"""Every worked example of the sheets by itself, and what counts as a fault."""

import pytest

from turngym.tests.verify.methods.examples import Example
from turngym.tests.verify.methods.field_examples import EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.method}-{EXAMPLES.index(one)}")
def test_a_sheets_example_is_reproduced(example):
    assert example.fault() == ""
    assert example.section.split(".md ")[0] in (
        "advantage",
        "agentic",
        "base",
        "clip_kl",
        "control",
        "inference",
        "objective",
        "sampling",
    )


def test_the_first_wrong_number_is_the_fault():
    def fault(found, expected):
        return Example("m", "base.md 1", lambda: found, expected).fault()

    assert fault([1.0, 2.0], [1.0000009, 2.0]) == ""
    assert fault([1.0, 2.0, 3.0], [1.0, 2.1, 4.0]) == "2.000000 for 2.100000"
    assert fault([1.0], [1.0, 2.0]) == "1 values for 2"
    assert fault([float("nan")], [1.0]) == "nan for 1.000000"
