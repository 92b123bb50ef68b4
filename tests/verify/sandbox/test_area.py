"""The area `sandbox`: which rows its parts have, and what an option must be."""

import pytest

from turngym.tests.verify.rows import Row
from turngym.tests.verify.sandbox import load, machines, programs, snippets
from turngym.tests.verify.sandbox.area import Sandbox


@pytest.fixture
def parts(monkeypatch, tmp_path):
    """Each part as one row of its name; a corpus without a program."""

    def row(name, several=False):
        found = Row(name, 1, 1)
        return lambda *args: iter([found]) if several else found

    monkeypatch.setattr(programs, "program_rows", row("programs", True))
    monkeypatch.setattr(snippets, "benign_row", row("benign"))
    monkeypatch.setattr(snippets, "snippet_row", row("snippets"))
    monkeypatch.setattr(load, "load_rows", row("load", True))
    monkeypatch.setattr(machines, "machine_row", row("machines"))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "category": "ok", "code": "", "must_hold": "U"}\n')
    return corpus


def test_all_parts_are_counted(parts):
    names = [row.what for row in Sandbox(corpus=parts).rows()]
    assert names == ["programs", "benign", "snippets", "load", "machines"]


@pytest.mark.parametrize("only", ["programs", "benign", "snippets", "load", "machines"])
def test_one_part_is_counted(parts, only):
    assert [row.what for row in Sandbox(only=only, corpus=parts).rows()] == [only]


def test_a_missing_corpus_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="--corpus"):
        list(Sandbox(corpus=tmp_path / "none.jsonl").rows())
