"""Hostile completions: every promise, kept and broken."""

import pytest

from turngym.envs.household.env import ALFWorldEnv
from turngym.envs.outcomes import Reply
from turngym.tests.verify.household import hostile


def answer(text, must_hold, **row):
    return {"id": "one", "env": "household", "text": text, "must_hold": must_hold, **row}


@pytest.mark.parametrize(
    ("must", "step"),
    [
        ("no_crash", lambda env, text: Reply("")),
        ("obs_cap", lambda env, text: Reply("x" * 300_000, info={"command": "look"})),
        ("reward=0", lambda env, text: Reply("x", 1.0, info={"command": "look"})),
        ("error_observed", lambda env, text: Reply("x", info={"command": "look"})),
        (
            "no_gold_in_obs",
            lambda env, text: Reply(f"Try {env.gold()[-1]}", info={"command": "look"}),
        ),
        ("cut_after_first_call", lambda env, text: Reply("x", info={"command": "help"})),
        ("actions_run=1", lambda env, text: Reply("x", info={"command": None})),
        (
            "stable",
            lambda env, text: Reply(
                f"{id(env)} {env.turn}", info={"command": "look", "env": id(env)}
            ),
        ),
    ],
)
def test_a_broken_promise_falls_short(catalogue, write, monkeypatch, must, step):
    real, held = ALFWorldEnv.on_step, []

    def on_step(self, text):
        held.append(self)  # so that no two have the same id
        return step(self, text) if self.turn else real(self, text)

    monkeypatch.setattr(ALFWorldEnv, "on_step", on_step)
    row = hostile.answer_row(write("a.jsonl", [answer("<action>look</action>", must)]), catalogue)
    assert (row.held, row.of) == (0, 1) and (must in row.note or "raises" in row.note)


def test_two_commands_at_once_and_steps_after_the_end_fall_short(catalogue, write, monkeypatch):
    real = ALFWorldEnv.on_step

    def on_step(self, text):
        if not self.turn:
            return real(self, text)
        self.state = self.world.start
        return Reply("x", info={"command": "look"})

    monkeypatch.setattr(ALFWorldEnv, "on_step", on_step)
    rows = [answer("look", "state_ok"), answer("look", "step_after_done_raises_or_noop")]
    row = hostile.answer_row(write("a.jsonl", rows), catalogue)
    assert (row.held, row.of) == (0, 2)


def test_an_environment_that_changes_after_its_end_falls_short(catalogue, write, monkeypatch):
    real = ALFWorldEnv.step

    def step(self, action):
        if not self.live:
            self.state = self.world.start
        return real(self, action)

    monkeypatch.setattr(ALFWorldEnv, "step", step)
    row = hostile.answer_row(
        write("a.jsonl", [answer("look", "step_after_done_raises_or_noop")]), catalogue
    )
    assert (row.held, row.of) == (0, 1) and "step_after_done" in row.note
