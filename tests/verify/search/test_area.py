"""The area `search` on small files: which rows there are, and what is refused."""

import json
from dataclasses import replace

import pytest

from turngym.agents.check import clauses
from turngym.tests.verify.rows import Row
from turngym.tests.verify.search import control_tokens, faults, hostile, retrieval, serving
from turngym.tests.verify.search.area import Search

HOSTILE = {
    "id": "right",
    "env": "search",
    "text": "<answer>Paris</answer>",
    "gold": "Paris",
    "must_hold": "reward=1",
}


@pytest.fixture
def area(tmp_path, monkeypatch):
    """A small setting; what has tests of its own is left out or told what to say."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        clauses, "CLAUSES", [clause for clause in clauses.CLAUSES if clause.name == "gold"]
    )
    monkeypatch.setattr(retrieval, "_same", lambda data, wanted: [Row("the same", 1, 1)])
    monkeypatch.setattr(
        serving, "serving_rows", lambda data: [Row("served", len(data.questions), 7)]
    )
    monkeypatch.setattr(faults, "CASES", {"404": faults.CASES["404"]})
    monkeypatch.setattr(faults, "alone_row", lambda: Row("alone", 1, 1))
    monkeypatch.setattr(control_tokens, "shown_row", lambda: Row("shown", 1, 1))
    rows = {
        "corpus.jsonl": [
            {"id": str(i), "title": f"T{i}", "text": f"city{i} is large"} for i in range(20)
        ],
        "questions.jsonl": [
            {"question": f"city{i}?", "answers": [f"T{i}"], "gold_passages": [str(i)]}
            for i in range(7)
        ],
        "answers.jsonl": [HOSTILE],
    }
    for name, lines in rows.items():
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"corpus": tmp_path / "corpus.jsonl", "questions": tmp_path / "questions.jsonl"}
    return Search(
        **files, answers=tmp_path / "answers.jsonl", tasks=4, learned=50, processes=1, episodes=2
    )


def test_one_file_alone_and_missing_ones_are_refused(area, tmp_path):
    with pytest.raises(
        ValueError, match=r"corpus is .* and questions is None; name both files or none"
    ):
        next(replace(area, questions=None).rows())
    none = tmp_path / "none.jsonl"
    for wrong in ({"corpus": none}, {"questions": none}, {"answers": none}):
        with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
            next(replace(area, **wrong).rows())


def test_an_unknown_predicate_stops_everything_before_it_begins(area):
    area.answers.write_text(json.dumps({**HOSTILE, "must_hold": "wonder"}))
    with pytest.raises(ValueError, match="unknown predicate 'wonder'"):
        next(area.rows())
    assert hostile.ENV == "search" and next(replace(area, only="server").rows()).good
