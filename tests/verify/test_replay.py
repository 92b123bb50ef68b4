import itertools

import numpy as np

from turngym.agents import replay as replaying
from turngym.tests.verify.replay import Replay, script
from turngym.tools import PythonTool


def test_scripted_episodes_come_out_again_and_changes_are_found():
    rows = list(Replay(episodes=32, changes=16).rows())
    assert [(row.held, row.of, row.good) for row in rows] == [(32, 32, True), (16, 16, True)]
    for name in ("ok", "error", "killed", "rejected", "malformed", "answered", "no_answer", "max_turns"):
        assert f" {name}" in rows[0].note


def test_a_script_depends_on_its_generator_alone():
    one, again, other = (script(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == again != other and len(one) == 5


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
