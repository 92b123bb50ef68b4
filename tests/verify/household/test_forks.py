"""Forks that share nothing, and those that do."""

from turngym.envs.household.env import ALFWorldEnv
from turngym.tests.verify.household.forks import fork_row


def test_a_fork_that_is_the_original_falls_short(catalogue, monkeypatch):
    monkeypatch.setattr(ALFWorldEnv, "fork", lambda self: self)
    row = fork_row(catalogue, 0, 3)
    assert row.held == 0 and "raises ResetNeeded" in row.note


def test_a_fork_that_begins_anew_falls_short(catalogue, monkeypatch):
    kept = ALFWorldEnv.fork

    def fork(self):
        twin = kept(self)
        twin.state = self.world.start
        return twin

    monkeypatch.setattr(ALFWorldEnv, "fork", fork)
    row = fork_row(catalogue, 0, 3)
    assert (
        0 < row.held < row.of and "the fork is another" in row.note and "original" not in row.note
    )


def test_a_snapshot_that_forgets_falls_short(catalogue, monkeypatch):
    kept = ALFWorldEnv.snapshot

    def snapshot(self):
        twin = self.fork()
        twin.reset(options={"task": 0})
        return kept(twin)

    monkeypatch.setattr(ALFWorldEnv, "snapshot", snapshot)
    row = fork_row(catalogue, 0, 3)
    assert 0 < row.held < row.of and "the restored snapshot" in row.note
