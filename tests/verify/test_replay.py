import itertools

from turngym.agents.journal import replay as replaying
from turngym.tests.verify.replay import Replay
from turngym.tools import PythonTool


def test_a_tool_that_forgets_how_it_answered_makes_the_row_fall_short(monkeypatch):
    count, call = itertools.count(), PythonTool.call

    def moody(self, arguments):
        result = call(self, arguments)
        return type(result)(result.status, f"{result.text}{next(count)}")

    monkeypatch.setattr(PythonTool, "call", moody)
    row, _ = Replay(episodes=4, changes=1).rows()
    assert not row.good and row.held < 4 and "text was " in row.note


def test_a_replay_that_finds_nothing_makes_the_row_of_changes_fall_short(monkeypatch):
    monkeypatch.setattr(replaying, "_first", lambda *_: None)
    _, row = Replay(episodes=4, changes=4).rows()
    assert (row.held, row.of, row.good) == (0, 4, False) and row.note.count(" of turn ") == 4
