"""The area on small files, and with a grader that errs."""

import gzip
import json

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.math.grade import Grade
from turngym.tests.verify.grader import area as area
from turngym.tests.verify.grader import hostile, trials
from turngym.tests.verify.grader.area import Grader
from turngym.tests.verify.grader.predicates import Seen

ROWS = [
    {"id": "right", "env": "math", "text": r"\boxed{7}", "gold": "7", "must_hold": "reward=1; stable"},
    {"id": "call", "env": "math_tool", "text": "x", "gold": "7", "must_hold": "no_crash"},
    {"id": "other", "env": "search", "text": "x", "gold": "7", "must_hold": "blocked"},
]
PAIRS = [("7", "7.0", True), ("7", "The answer is 7", True), ("7", "8", False)]


def write(path, rows):
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """The rows of the area on small files, without fresh processes and hostile answers."""
    for names, gold in zip(area.GOLDS, ("7", r"\frac{1}{2}"), strict=True):
        for name in names:
            write(tmp_path / name, [{"problem": "?", "answer": gold}] * 5)

    def played(order, processes, seed):
        return {one.id: [Seen(score=1.0)] * processes for one in order}, area.Row("fresh", 3, 3)

    monkeypatch.setattr(trials, "seen", played)
    monkeypatch.setattr(hostile, "hostile", lambda seed: [("7", r"\boxed{8}"), ("7", r"\boxed{9}")])

    def count(rows=ROWS, cases=PAIRS, **options):
        listed = [{"gold": gold, "pred": pred, "expected_equal": equal} for gold, pred, equal in cases]
        files = {"answers": write(tmp_path / "a", rows), "equiv": write(tmp_path / "e", listed), "data": tmp_path}
        return list(Grader(**files, completions=60, threads=4, **options).rows())

    return count


def test_every_row_is_counted(counted):
    rows = counted(seed=3)
    assert [(row.what.split(" ")[0], row.held, row.of) for row in rows] == [
        ("hostile", 2, 2),
        ("fresh", 3, 3),
        ("right", 60, 60),
        ("wrong", 60, 60),
        ("disputed", 3, 3),
        ("completions", 81, 81),
        ("hostile", 2, 2),
    ]
    assert all(row.good for row in rows) and rows[2].need == 0.995
    assert rows[0].note.endswith("1 of search left out")
    assert "box alone" in rows[2].note and "restated sum" in rows[3].note
    assert rows[4].note == "3 as the corpus does, 0 otherwise, each listed with its reason"


@pytest.mark.parametrize(("score", "short"), [(0.0, ["right"]), (1.0, ["wrong", "disputed"])])
def test_a_grader_that_errs_falls_short(counted, monkeypatch, score, short):
    monkeypatch.setattr(MathGrader, "grade", lambda self, **_: Grade(score, "", "string"))
    cases = PAIRS if score else [("7", "8", False)]
    assert [row.what.split(" ")[0] for row in counted(cases=cases) if not row.good] == short


def test_hostile_completions_that_do_not_hold_are_named(counted):
    wrong = {**ROWS[0], "id": "wrong", "must_hold": "reward=0; no_crash"}
    row = counted(rows=[*ROWS, wrong])[0]
    assert (row.held, row.of, row.note) == (2, 3, "wrong: reward=0")


def test_an_unknown_predicate_stops_everything(counted):
    with pytest.raises(ValueError, match="right: unknown predicate 'reward=maybe'"):
        counted(rows=[{**ROWS[0], "must_hold": "reward=maybe"}])


def test_disputed_pairs_that_are_not_listed_are_named(counted):
    row = counted(cases=[("7", "8", True)])[4]
    assert not row.good and "disagrees and is not listed: '7' and '8'" in row.note


def test_golds_are_drawn_by_the_seed_from_both_sets(counted, tmp_path):
    for names in area.GOLDS:
        write(tmp_path / names[0], [{"problem": "?", "answer": str(i)} for i in range(20)])
    drawn = [area._golds(tmp_path, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and len(drawn[0]) == 50
