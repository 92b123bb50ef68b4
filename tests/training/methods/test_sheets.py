"""Every part of the sheets with a worked example has a test, but for methods that turngym does not have."""

from turngym.tests.verify.methods.sheets import SHEETS, rows

MISSING: dict[str, str] = {}


def test_worked_examples_without_a_test_have_a_reason(shared_data) -> None:
    found = list(rows(shared_data.parent / "methods"))
    assert {sheet for sheet, *_ in found} == set(SHEETS) and len(found) > 50
    without = [heading for _, heading, _, count in found if not count]
    assert all(any(heading.startswith(name) for name in MISSING) for heading in without) and len(
        without
    ) == len(MISSING)
