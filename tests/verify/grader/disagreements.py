"""Rows of the answer-equivalence corpus on which we disagree on purpose, by the reason; docs/grader.md shows them."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, tuple[str, ...]] = {  # keys are those of `equivalence.key`
    "a letter in prose is not an answer; it must be in a box": (
        "da2f759b",
        "cf7124bd",
        "68d5a66a",
        "5d140715",
        "dfef88c6",
    ),
    "the gold is prose around an answer; a gold must be the answer itself": (
        "6d55cb3d",
        "94f3bab7",
        "55156447",
        "a40955b8",
    ),
    "the row sets a tolerance; numbers are compared exactly": ("2b8aa1ad", "be6f56f6", "c7e87f14"),
    "a chain of relations is refused if the gold is one value, even if its ends agree": (
        "30c7322f",
        "995554a6",
        "19ff167b",
        "c4b4e45b",
    ),
    "arithmetic that is not evaluated is refused if the gold is a number": ("86387ba7", "b1252beb"),
    "a comma is not a decimal point": ("ea5c938c", "ad1aeff1"),
    "the last box counts, whatever text follows it": ("b585afce",),
    "two boxes with words between them are two answers, and the last one counts": ("cca24337",),
    "line breaks in a formula are white space": ("e8f5474f",),
    "control tokens, complete or broken, do not change the answer in the box": (
        "b53e112d",
        "a13359d3",
    ),
    "an inequality and the interval that it describes are the same answer, whichever is the gold": (
        "e7e7c7fe",
    ),
    "other letters mean another function": ("5f217cc2",),
}
