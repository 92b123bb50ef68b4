"""`turngym verify`: rows as they are counted, and an exit status that tells."""

import pytest

from turngym import __main__ as cli
from turngym.agents.cli import terminal
from turngym.tests.verify.command import Verify
from turngym.tests.verify.rows import Row


class Area:
    """Two rows, of which the second depends."""

    seed = 7

    def __init__(self, held: int, note: str = "") -> None:
        self.held, self.note = held, note

    def rows(self):
        yield Row("doors are closed", 3, 3)
        yield Row("[windows] are closed", self.held, 100, self.note, need=0.995)
        if self.held < 0:
            raise FileNotFoundError("windows.jsonl is missing")


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(terminal.console, "width", 200)


def test_rows_are_printed_with_denominators_notes_and_a_verdict(capsys):
    assert Verify(Area(100, "the slowest took 3 s")).run() == 0
    out = capsys.readouterr().out
    assert "holds  3/3  doors are closed" in out
    assert (
        "holds  100/100  [windows] are closed (needs 99.5 %)" in out
        and "the slowest took 3 s" in out
    )
    assert "verify area: 2/2 rows hold, seed 7, " in out


def test_a_row_that_falls_short_is_status_1(capsys):
    assert Verify(Area(99)).run() == 1
    out = capsys.readouterr().out
    assert "SHORT  99/100" in out and "1/2 rows hold" in out


def test_a_row_without_a_case_does_not_hold():
    assert not Row("nothing", 0, 0).good


def test_bad_input_is_one_line(capsys):
    with pytest.raises(SystemExit) as left:
        Verify(Area(-1)).run()
    assert left.value.code == 2 and "windows.jsonl is missing" in capsys.readouterr().err


def test_an_unknown_run_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["verify", "accounting", "--run", "nowhere"])
    assert left.value.code == 2 and "nowhere" in capsys.readouterr().err
