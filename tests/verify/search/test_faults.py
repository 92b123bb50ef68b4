"""Ways to answer badly: some of each kind, and what falls short."""

import pytest

from turngym.tests.verify.search import faults
from turngym.tests.verify.search.faults import CASES, BadAnswer, alone_row, crowd_row, outcome
from turngym.tools.search import Fault
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.retriever import Passage, SearchFailure

QUICK = (
    *(
        "404",
        "a redirect",
        "deep JSON",
        "connections reset",
        "a compressed bomb",
        "damaged gzip",
        "429 twice",
    ),
    *(
        "control tokens in a document",
        "more documents than asked for",
        "a score that is a text",
        "an endless body",
    ),
)


@pytest.fixture
def quick(monkeypatch):
    """Leave out the ways that take until a deadline."""
    chosen = {name: CASES[name] for name in QUICK}
    monkeypatch.setattr(faults, "CASES", chosen)
    return chosen


def test_another_outcome_and_a_late_one_fall_short(quick, monkeypatch):
    other = {"404": BadAnswer(quick["404"].answer, frozenset(["passages"]))}
    row = alone_row(other)
    assert (row.held, row.of) == (0, 1) and row.note.startswith("404: status after 0.")
    monkeypatch.setattr(faults, "LATE", -faults.BOUNDS.deadline)
    assert alone_row({"404": quick["404"]}).held == 0


def test_what_is_raised_otherwise_falls_short(quick, monkeypatch):
    def search(self, query, k):
        raise KeyError("result")

    monkeypatch.setattr(SearchR1, "search", search)
    row = crowd_row(5)
    assert (row.held, row.note) == (0, "KeyError: 'result' 5")


def test_more_passages_than_asked_for_fall_short(quick, monkeypatch):
    monkeypatch.setattr(
        SearchR1, "search", lambda self, query, k: [Passage("1", "", "x")] * (k + 1)
    )
    assert alone_row({"429 twice": quick["429 twice"]}).note.startswith(
        "429 twice: ValueError: there are more than 3"
    )


def test_outcomes_are_named():
    def fail(error):
        raise error

    assert outcome(list) == "passages"
    assert outcome(lambda: fail(SearchFailure(Fault.TOO_LARGE, "x"))) == "too_large"
    assert outcome(lambda: fail(ZeroDivisionError("x"))) == "ZeroDivisionError: x"
