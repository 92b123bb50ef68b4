"""Words and sentences that must not come back: plain English is part of the interface."""

import re
from pathlib import Path

import pytest

import turngym

ROOT = Path(turngym.__file__).parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

WORDS = (  # regular expressions; they match whole words, whatever their case
    "obituar(y|ies)",
    "steward(s|ed)?",
    "furnish(es|ed|ing)?",
    "bur(y|ies|ied|ying)",
    "autops(y|ies)",
    "way_on",
    "turn about",
    "(laid|lies?|lay) end to end",
    "by what it (sees|is shown)",
    "goes astray",
    "no longer",
)
SENTENCES = (
    "a token on paths of both weighs in each the share of its paths",
    "so both add up to all",
    "What has no term in the loss is not computed",
    "it has no ratio and is not held by a clip",
    "The missing mass lies on a number of tokens between the fewest that can hold it and all that were not shown",
    "and they would be their plain form",
    "each from its own thread, are as alone",
    "Runs a method, with the seed of",
    "are what they were",
)


def found(text: str) -> list[str]:
    """The words and sentences of the lists in a text, wherever its lines break."""
    flat = re.sub(r"\s+(#\s)?", " ", text)
    words = [match[0] for word in WORDS for match in re.finditer(rf"\b{word}\b", flat, re.I)]
    return words + [sentence for sentence in SENTENCES if sentence.lower() in flat.lower()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_has_them(path):
    assert found(path.read_text("utf-8")) == []


def test_they_are_found_across_lines_and_in_any_case():
    assert found("Environments are stepped turn\n    about; it is buried.") == ["buried", "turn about"]
    assert found("64 episodes of a file are\nwhat they were") == ["are what they were"]
    assert found("Environments are stepped in turn, about 64 of them.") == []
