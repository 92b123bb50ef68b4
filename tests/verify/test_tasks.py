import json

import pytest

from turngym.envs.math.grading.grader import Grade, MathGrader
from turngym.tests.verify import tasks as area
from turngym.tests.verify.tasks import Tasks


def write(folder, **files):
    for name, golds in files.items():
        rows = [
            json.dumps({"id": f"{name}-{i}", "problem": f"{i}?", "answer": gold})
            for i, gold in enumerate(golds)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n\n")
    return folder


def counted(*args, **options):
    return {row.what: row for row in Tasks(*args, entries=0, constant=0, **options).rows()}


def test_every_row_names_its_file_and_its_cases(tmp_path):
    folder = write(tmp_path, one=["7", r"\frac{1}{2}", "7"], two=["Monday"])
    rows = counted(folder)
    assert [(row.what, row.held, row.of) for row in rows.values()][:6] == [
        ("one.jsonl: rows that load", 3, 3),
        ("one.jsonl: golds paid in every second form", 3, 3),
        ("one.jsonl: wrong answers not paid", 6, 6),
        ("two.jsonl: rows that load", 1, 1),
        ("two.jsonl: golds paid in every second form", 1, 1),
        ("two.jsonl: wrong answers not paid", 0, 0),
    ]
    note = "assigned 3/3, decimal 3/3, dfrac 1/1, fraction 3/3, slash 1/1, wrapped 1/1"
    assert rows["forms that occur (paid/made)"].note == note


@pytest.mark.parametrize(
    ("score", "short"), [(0.0, "golds paid in every second form"), (1.0, "wrong answers not paid")]
)
def test_a_grader_that_errs_makes_a_row_fall_short(tmp_path, monkeypatch, score, short):
    monkeypatch.setattr(MathGrader, "grade", lambda self, **_: Grade(score, "", "string"))
    rows = counted(write(tmp_path, one=["7", "8"]))
    assert next((row.what, row.held, row.note) for row in rows.values() if not row.good) == (
        f"one.jsonl: {short}",
        0,
        "one-0, one-1" if score == 0 else "one-0, one-0, one-1, one-1",
    )


def test_a_row_is_listed_apart_only_while_it_must_be(tmp_path, monkeypatch):
    monkeypatch.setattr(area, "APART", {"one-0": "a sentence", "one-1": "no longer"})
    rows = counted(write(tmp_path, one=["it is so, or not; where b > 0", "8", "9"]))
    assert rows["one.jsonl: golds paid in every second form"].of == 1
    listed = rows["rows listed apart that have no second form"]
    assert (listed.held, listed.of, listed.note) == (1, 2, "one-0: a sentence; one-1: no longer")
