"""The rows of the index, on a small corpus; the sameness in real processes."""

import subprocess
import sys

import pytest

from turngym.tests.verify.search import retrieval
from turngym.tools.search.bm25 import BM25


@pytest.fixture
def said(monkeypatch):
    """Let processes say what a list holds, in turn, instead of searching."""

    def say(*lines):
        left = list(lines)

        def process(data, cache, seed, wait=False):
            command = [sys.executable, "-S", "-c", f"print({left.pop(0)!r})"]
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

        monkeypatch.setattr(retrieval, "_process", process)
        monkeypatch.setattr(retrieval, "CROWD", 1)
        monkeypatch.setattr(retrieval, "PROCESSES", 1)

    return say


def test_a_process_that_finds_something_else_falls_short(read, said):
    said("x", "x", "y")
    rows = list(retrieval._same(read, "x"))
    assert [(row.held, row.of) for row in rows] == [(1, 1), (1, 2)] and rows[1].note == "found y"


def test_an_index_that_finds_less_or_is_slow_falls_short(read, said, monkeypatch):
    said("x", "x", "x")
    monkeypatch.setattr(BM25, "search", lambda self, query, k: [])
    monkeypatch.setattr(retrieval, "BUILD", 0.0)
    monkeypatch.setattr(retrieval, "QUERY", 0.0)
    rows = list(retrieval.retrieval_rows(read))
    assert not any(row.good for row in rows) and [row.held for row in rows[:6]] == [0] * 6
