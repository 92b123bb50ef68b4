"""docs/field.md says what the cards say."""

from turngym.tests.support.field import PAGE, page


def test_the_table_of_the_field_is_made_of_the_cards() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "write it: python -m turngym.tests.support.field"
