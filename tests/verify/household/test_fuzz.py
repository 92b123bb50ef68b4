"""Fuzzed commands, and environments that crash, end or pay wrongly."""

import pytest

from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.outcomes import Reply, StopReason
from turngym.tests.verify.household.fuzz import fuzz_row


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (
            lambda reply: Reply(reply.text, 0.5, info=reply.info),
            "reward 0.5 with the task not done",
        ),
        (
            lambda reply: Reply(reply.text, 0.0, StopReason.GOAL, info=reply.info),
            "ended True, cut False, reward 0.0",
        ),
        (lambda reply: Reply("", reply.reward, reply.stop, info=reply.info), "is not answered"),
        (
            lambda reply: Reply(reply.text, reply.reward, reply.stop, info={}),
            "is not allowed and changes something",
        ),
        (lambda reply: 1 / 0, "raises ZeroDivisionError"),
    ],
)
def test_planted_faults_fall_short(catalogue, monkeypatch, reply, fault):
    real = ALFWorldEnv.on_step
    monkeypatch.setattr(ALFWorldEnv, "on_step", lambda self, text: reply(real(self, text)))
    row = fuzz_row(catalogue, 0, 1, 60)
    assert row.held < row.of == 60 and fault in row.note
