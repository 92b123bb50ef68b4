from pathlib import Path

import turngym
from turngym.tests.verify.grader import equivalence
from turngym.tests.verify.grader.disagreements import REASONS
from turngym.tests.verify.grader.equivalence import Pair, judged, pairs


def test_listed_rows_must_disagree_and_others_agree(monkeypatch):
    monkeypatch.setattr(equivalence, "LISTED", {"c": "why", "d": "why"})
    rows = [
        Pair("a", "1", "1", True),
        Pair("b", "1", "2", True),
        Pair("c", "1", "1", True),
        Pair("d", "1", "2", True),
    ]
    faults = [fault for _, fault in judged(rows, lambda row: row.gold == row.pred)]
    assert faults == ["", "disagrees and is not listed", "is listed and agrees", ""]


def test_every_listed_row_is_in_the_corpus_and_in_the_documentation(shared_data):
    listed = [one for keys in REASONS.values() for one in keys]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= {
        pair.key for pair in pairs(shared_data / "answer_equiv" / "equiv_cases.jsonl")
    }
    shown = (Path(turngym.__file__).parent / "docs" / "grader.md").read_text("utf-8")
    for reason, keys in REASONS.items():
        assert [one for one in (reason, *keys) if one not in shown] == []
