"""The real server: the same answers, its end amid searches and episodes, and what falls short."""

import pytest

from turngym.tests.verify.search import serving, strangers
from turngym.tools.search.bm25 import BM25
from turngym.tools.search.remote import SearchR1
from turngym.tools.search.serve import _App, serve


@pytest.fixture
def small(monkeypatch):
    """Few searches and episodes, and little patience."""
    sizes = {"CROWD": 12, "SEARCHES": 24, "EPISODES": 12, "THREADS": 2}
    for name, size in sizes.items():
        monkeypatch.setattr(serving, name, size)


@pytest.fixture
def index(read):
    """The index of the small corpus."""
    return BM25(read.passages)


@pytest.fixture
def served(index):
    """The server in this process, and a way to end it at once."""
    context = serve(index, port=0)
    url, open_ = context.__enter__(), [True]

    def end():
        if open_:
            open_.clear()
            context.__exit__(None, None, None)

    yield url, end
    end()


def test_without_an_end_nothing_is_shown(read, index, served, small):
    url, _ = served
    killed, left = (
        serving._killed(read, index, url, lambda: None),
        serving._left(read, url, lambda: None),
    )
    assert (killed.held, left.held) == (0, 0) and left.note == "done 12"


def test_another_answer_falls_short(read, index, served, small, monkeypatch):
    url, end = served
    search = SearchR1.search
    monkeypatch.setattr(SearchR1, "search", lambda self, query, k: search(self, query, k)[::-1])
    row = serving._same(read, index, url)
    assert row.held == 0 and row.note.startswith("another answer to ")
    assert serving._killed(read, index, url, end).held < 24


def test_strangers_are_refused_and_one_that_is_answered_falls_short(served, monkeypatch):
    row = strangers._refused(served[0])
    assert row.good and row.of == len(strangers.requests())
    monkeypatch.setattr(_App, "_check_head", lambda self, scope: None)
    assert strangers._refused(served[0]).held < row.held - 10


def test_an_episode_that_is_a_failure_and_paid_nothing_is_wrong():
    from turngym.agents.evaluation.scores import Episode
    from turngym.envs import Outcome

    right = [
        Episode(0, Outcome.DONE, "answered", 1.0, 1, False),
        Episode(0, Outcome.TOOL_ERROR, "x", float("nan"), 1, False),
    ]
    wrong = [
        Episode(0, Outcome.DONE, "answered", 0.0, 1, False),
        Episode(0, Outcome.TOOL_ERROR, "x", 0.0, 1, False),
    ]
    wrong.append(Episode(0, Outcome.INFRA_ERROR, "x", float("nan"), 1, False))
    assert all(map(serving._right, right)) and not any(map(serving._right, wrong))
