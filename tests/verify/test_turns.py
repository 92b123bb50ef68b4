"""The rules of a turn, on the environments that there are, and on those that break one."""

import gymnasium
import pytest

from turngym.envs import Reply, StopReason
from turngym.envs.qa import QAGrader
from turngym.envs.question.env import QuestionEnv
from turngym.envs.registry import ENVS
from turngym.envs.tasks import ListTasks, Task
from turngym.tests.verify import turns

IDS = [entry.id for entry in ENVS if not entry.needs]


@pytest.fixture
def register():
    """Registers what makes an environment for one test."""
    added = []

    def register(maker):
        added.append(f"test/{maker.__name__}-v0")
        gymnasium.register(added[-1], entry_point=maker)
        return added[-1]

    yield register
    for name in added:
        del gymnasium.registry[name]


@pytest.mark.slow
def test_every_environment_keeps_the_rules():
    rows = list(turns.turn_rows(IDS, 0))
    assert len(rows) == 3 and [row.note for row in rows if not row.good] == []
    assert rows[0].of > 80 and rows[1].of == 7 * len(IDS)


class Quiz(QuestionEnv):
    """One question."""

    def __init__(self):
        super().__init__(ListTasks([Task("t", "Where?", "Rome")]), QAGrader())

    def gold(self):
        return ["<answer>Rome</answer>"]


class Paid(Quiz):
    """Any of several answers is paid."""

    def on_step(self, text):
        return Reply("", float("Rome" in text), StopReason.ANSWERED)


class Twice(Quiz):
    """It goes on behind its end."""

    def step(self, action):
        self.live = self.task is not None
        return super().step(action)


class Late(Quiz):
    """A step writes what it has to say whatever happened meanwhile."""

    def step(self, action):
        try:
            return super().step(action)
        finally:
            self.turn = 1


@pytest.mark.parametrize(("maker", "bad"), [(Quiz, []), (Paid, [0]), (Twice, [1]), (Late, [2])])
def test_a_broken_rule_makes_its_row_fall_short(register, maker, bad):
    rows = list(turns.turn_rows([register(maker)], 0))
    assert [i for i, row in enumerate(rows) if not row.good] == bad
