"""The files that retrieval is measured on."""

import pytest

from turngym.tests.verify.search import corpus

PASSAGE = {"id": "1", "title": "t", "text": "x"}


def test_questions_without_gold_passages_are_counted_apart(read):
    assert len(read.passages) == 12 and len(read.questions) == 6 and (read.others, read.total) == (1, 7)
    assert read.questions[2] == corpus.Question("When was the tower of Oslo built?", ("b2",))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "?", "gold_passages": ["2"]}, r"q.jsonl:1 names the gold passage '2', which is not in .*c.jsonl"),
        ({"question": 7, "gold_passages": ["1"]}, r"q.jsonl:1 needs a text `question`"),
        ({"question": "?", "gold_passages": "1"}, r"q.jsonl:1 needs .* a list of ids"),
        ({"question": "?", "gold_passages": None}, r"q.jsonl has no question with `gold_passages`"),
    ],
)
def test_a_file_that_is_not_as_described_is_named(write, row, said):
    with pytest.raises(ValueError, match=said):
        corpus.read(write("c.jsonl", [PASSAGE]), write("q.jsonl", [row]))


def test_missing_files_are_named(write, tmp_path):
    with pytest.raises(FileNotFoundError, match="--questions"):
        corpus.read(write("c.jsonl", [PASSAGE]), tmp_path / "none.jsonl")
    with pytest.raises(FileNotFoundError, match="none"):
        corpus.read(tmp_path / "none.jsonl", tmp_path / "none.jsonl")


def test_a_world_is_written_as_files(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "WORLD_TASKS", 4)  # of 1, 2, 3 and 4 hops
    found = corpus.read(*corpus.write_world(tmp_path, 0))
    assert len(found.passages) > 1000 and found.total == len(found.questions) <= 10
    titles = {passage.id: passage.title for passage in found.passages}
    assert all(len(one.golds) == 1 for one in found.questions)
    assert sum(one.text.startswith(titles[one.golds[0]]) for one in found.questions) >= len(found.questions) // 3
