"""The area `methods`, small: what it counts, and that it counts what falls short."""

from dataclasses import replace

from turngym.tests.verify.methods import field_examples
from turngym.tests.verify.methods.area import Methods
from turngym.training.methods import METHODS


def test_every_method_has_its_rows():
    area = Methods(method="aepo-clip")
    rows = list(area.rows())
    assert [row.what for row in rows] == [
        "aepo-clip: worked examples",
        "aepo-clip: battery",
        "aepo-clip: gradient direction",
    ]
    assert all(row.good for row in rows) and [row.of for row in rows] == [1, 20, 2]
    assert rows[0].note == "agentic.md D"
    without = """acpo actfocus adapo aem aepo-he aepo-wang ces clip-lower clip-tighter cure dler dmpo
    data-subset dynamic-sampling eag-rl entrocraft entropy-bonus
    espo fr3e less nsr opefo prorl psr rand-pos-clip repo treerl turn-floor"""  # no numbers here
    shown = {example.method for example in field_examples.EXAMPLES}
    assert shown == set(METHODS) - set(without.split())


def test_a_wrong_number_is_named(monkeypatch):
    (right,) = (example for example in field_examples.EXAMPLES if example.method == "aepo-clip")
    wrong = replace(right, expected=[*right.expected[:-1], 9.0])
    monkeypatch.setattr(field_examples, "EXAMPLES", [wrong])
    row = next(Methods(method="aepo-clip").rows())
    assert (row.held, row.of, row.good) == (0, 1, False)
    assert "0.000000 for 9.000000" in row.note
