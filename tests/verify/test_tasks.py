import gzip
import json

import pytest

from turngym.envs.math import reasoning
from turngym.envs.math.grade import Grade, MathGrader
from turngym.envs.rows import load_jsonl
from turngym.tests.verify import tasks as area
from turngym.tests.verify.tasks import Tasks

EVERY = 90  # of a real file's rows, one is taken


def write(folder, **files):
    for name, golds in files.items():
        rows = [json.dumps({"id": f"{name}-{i}", "problem": f"{i}?", "answer": gold}) for i, gold in enumerate(golds)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n\n")
    return folder


def counted(*args, **options):
    return {row.what: row for row in Tasks(*args, entries=0, **options).rows()}


def test_rows_of_all_real_files_are_paid_in_second_forms_and_wrong_answers_are_not(shared_data, tmp_path):
    for path in (shared_data / "math").iterdir():
        text = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        lines = text.strip().split("\n")[3::EVERY]
        (tmp_path / path.name.removesuffix(".gz")).write_text("\n".join(lines))
    rows = list(Tasks(tmp_path, entries=0).rows())
    assert [(row.what, row.note) for row in rows[:24] if not row.good] == []
    assert sum(row.of for row in rows[:24:3]) == sum(row.of for row in rows[1:24:3]) == 244
    assert rows[24].held > 20


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


def test_the_shortcut_is_off(tmp_path, monkeypatch):
    monkeypatch.setattr(MathGrader, "grade", lambda self, **_: Grade(float(self.shortcuts), "", "string"))
    assert counted(write(tmp_path, one=["7"]))["one.jsonl: golds paid in every second form"].held == 0


def test_a_sample_has_some_rows_of_every_form(tmp_path):
    folder = write(tmp_path, one=["7"] * 50 + [r"\frac{1}{3}"] * 2)
    rows = counted(folder, most=3)
    assert rows["one.jsonl: rows that load"].of == 52
    assert 3 <= rows["one.jsonl: golds paid in every second form"].of <= 8
    assert "dfrac 2/2" in rows["forms that occur (paid/made)"].note
    tasks = load_jsonl(folder / "one.jsonl")
    chosen = [Tasks(most=3, seed=seed)._chosen(tasks) for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]


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


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no .jsonl or .jsonl.gz file; name the folder with --data"):
        list(Tasks(tmp_path).rows())


def test_the_golds_of_reasoning_gym_are_counted(monkeypatch):
    pytest.importorskip("reasoning_gym")
    monkeypatch.setattr(reasoning, "offered", lambda: ("chain_sum", "leg_counting"))

    def grade(self, completion, gold):
        return Grade(float(completion == f"\\boxed{{{gold}}}" and gold.entry[0] == "chain_sum"), gold, "reasoning-gym")

    monkeypatch.setattr(reasoning.ReasoningGrader, "grade", grade)
    row = area.reasoning(2)
    assert (row.held, row.of, row.note) == (2, 4, "leg_counting-test-0, leg_counting-test-1")
    monkeypatch.setattr(reasoning, "offered", lambda: ("chain_sum",))
    assert area.reasoning(3).note == "1 data sets"
