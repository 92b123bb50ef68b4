"""Guesses without the tool, on questions that can be guessed and on some that cannot."""

import pytest

from turngym.envs.qa import QAGrader, QATask
from turngym.tests.verify.search.guesses import guess_rows, guesses

TITLES = ["Zanop", "Bilu Kor"]
LEARNED = [QATask(f"l{i}", f"Who rules Ab{i}?", "Kor") for i in range(3)] + [
    QATask("m", "Where does Qux lie?", "Ux")
]


def shares(*asked):
    tasks = [QATask(str(i), question, gold) for i, (question, gold) in enumerate(asked)]
    rows = guess_rows(QAGrader(), tasks, guesses(LEARNED, tasks, TITLES, 0))
    return {
        row.what.removeprefix("questions not answered without the tool by "): row for row in rows
    }


def test_what_cannot_be_guessed_is_not(capsys):
    rows = shares(*[(f"Who owns Yy{i}?", f"Vv{i}") for i in range(60)])
    assert len(rows) == 8 and all(row.good and row.of == 60 for row in rows.values())
    assert rows["the one constant that is right most often"].note == "1.67 % answered"


@pytest.mark.parametrize(
    ("way", "asked"),
    [
        ("the one constant that is right most often", ("Who?", "Nn")),
        ("the most frequent answer of train", ("Who?", "the Kor")),
        ("the most frequent answer of train to what begins alike", ("Where does Zed lie?", "Ux")),
        ("the answer of the most similar question of train", ("Qux: where?", "Ux")),
        ("any string of the question", ("Is Bo older than Al Min Ko?", "Al Min Ko")),
        ("the title most like the question", ("Does Bilu sing?", "Bilu Kor")),
    ],
)
def test_what_can_be_guessed_falls_short(way, asked):
    row = shares(*[asked] * 4)[way]
    assert (row.held, row.of, row.note) == (0, 4, "100.00 % answered") and not row.good
