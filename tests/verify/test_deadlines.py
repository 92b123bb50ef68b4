"""The area of deadlines on its shortest setting, and with a rollout that breaks a promise."""

import pytest

from turngym.agents.rollout import path, tree_grower
from turngym.tests.verify.deadlines import _Trials


@pytest.fixture(scope="module")
def trials():
    with _Trials(0) as trials:
        yield trials


def test_a_retry_with_another_key_is_found(trials, monkeypatch):
    plain = tree_grower.TreeGrower._attempt

    async def elsewhere(self, path, point, origin, length, again):
        path.key = (*path.key[:3], path.branch + 9 * again)
        return await plain(self, path, point, origin, length, again)

    monkeypatch.setattr(tree_grower.TreeGrower, "_attempt", elsewhere)
    assert not trials.retries().good


def test_a_stall_that_names_nobody_is_found(trials, monkeypatch):
    monkeypatch.setattr(path, "SHOWN", 0)
    row = trials.stalls()
    assert (row.held, row.of) == (0, 2) and "pending:  and" in row.note
