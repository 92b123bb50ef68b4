"""The area on small files, and with a grader that errs."""

import gzip
import json

import pytest

from turngym.envs.math import MathGrader
from turngym.envs.math.grading.grader import Grade
from turngym.tests.verify.grader import area as area
from turngym.tests.verify.grader import hostile, trials
from turngym.tests.verify.grader.area import Grader
from turngym.tests.verify.grader.predicates import Seen

ROWS = [
    {
        "id": "right",
        "env": "math",
        "text": r"\boxed{7}",
        "gold": "7",
        "must_hold": "reward=1; stable",
    },
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
        listed = [
            {"gold": gold, "pred": pred, "expected_equal": equal} for gold, pred, equal in cases
        ]
        files = {
            "answers": write(tmp_path / "a", rows),
            "equiv": write(tmp_path / "e", listed),
            "data": tmp_path,
        }
        return list(Grader(**files, completions=60, threads=4, **options).rows())

    return count


@pytest.mark.parametrize(("score", "short"), [(0.0, ["right"]), (1.0, ["wrong", "disputed"])])
def test_a_grader_that_errs_falls_short(counted, monkeypatch, score, short):
    monkeypatch.setattr(MathGrader, "grade", lambda self, **_: Grade(score, "", "string"))
    cases = PAIRS if score else [("7", "8", False)]
    assert [row.what.split(" ")[0] for row in counted(cases=cases) if not row.good] == short


def test_hostile_completions_that_do_not_hold_are_named(counted):
    wrong = {**ROWS[0], "id": "wrong", "must_hold": "reward=0; no_crash"}
    row = counted(rows=[*ROWS, wrong])[0]
    assert (row.held, row.of, row.note) == (2, 3, "wrong: reward=0")


def test_disputed_pairs_that_are_not_listed_are_named(counted):
    row = counted(cases=[("7", "8", True)])[4]
    assert not row.good and "disagrees and is not listed: '7' and '8'" in row.note
