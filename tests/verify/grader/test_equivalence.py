import json
from pathlib import Path

import pytest

import turngym
from turngym.tests.verify.grader import equivalence
from turngym.tests.verify.grader.disagreements import REASONS
from turngym.tests.verify.grader.equivalence import Pair, judged, key, pairs


@pytest.mark.parametrize(
    ("pred", "completion", "extract"),
    [
        ("1/2", r"\boxed{1/2}", "box"),
        (r"\text{even}+\sin x", r"\boxed{\text{even}+\sin x}", "box"),
        (r"It is \boxed{3}", r"It is \boxed{3}", "box"),
        ("The answer is 3", "The answer is 3", "last"),
        ("#### 3", "#### 3", "last"),
    ],
)
def test_a_prediction_becomes_a_completion(pred, completion, extract):
    pair = Pair("k", "3", pred, True)
    assert (pair.completion, pair.extract) == (completion, extract)


def test_listed_rows_must_disagree_and_others_agree(monkeypatch):
    monkeypatch.setattr(equivalence, "LISTED", {"c": "why", "d": "why"})
    rows = [Pair("a", "1", "1", True), Pair("b", "1", "2", True), Pair("c", "1", "1", True), Pair("d", "1", "2", True)]
    faults = [fault for _, fault in judged(rows, lambda row: row.gold == row.pred)]
    assert faults == ["", "disagrees and is not listed", "is listed and agrees", ""]


def test_a_key_depends_on_all_that_decides_the_row_and_not_on_its_place(tmp_path):
    assert len({key("1", "2"), key("2", "1"), key("1", "2", {"a": 1})}) == 3
    path = tmp_path / "cases.jsonl"
    row = {"gold": "1", "pred": "2", "expected_equal": False, "config": {"a": 1}}
    path.write_text(f"\n{json.dumps(row)}\n")
    assert pairs(path) == [Pair(key("1", "2", {"a": 1}), "1", "2", False)]


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="--equiv names"):
        pairs(tmp_path / "none")
    (tmp_path / "bad.jsonl").write_text('{"gold": "1"}')
    with pytest.raises(ValueError, match=r"bad.jsonl:1 is no row with gold, pred and expected_equal: KeyError: 'pred'"):
        pairs(tmp_path / "bad.jsonl")


def test_every_listed_row_is_in_the_corpus_and_in_the_documentation(shared_data):
    listed = [one for keys in REASONS.values() for one in keys]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= {pair.key for pair in pairs(shared_data / "answer_equiv" / "equiv_cases.jsonl")}
    shown = (Path(turngym.__file__).parent / "docs" / "grader.md").read_text("utf-8")
    for reason, keys in REASONS.items():
        assert [one for one in (reason, *keys) if one not in shown] == []
